"""What the judge lets pass, and what not."""

from __future__ import annotations

import pytest

from mqtt.encode import encode
from mqtt.packets import Connack, Connect, Pingresp, PublishRun
from tests.fuzz.cases import Case
from tests.fuzz.judge import Seen, Unjust, judged

CONNECT = encode(4, Connect(4, "c", False, 60))
CASE = Case(0, 4, 0, CONNECT, (CONNECT,))
ANSWERS = encode(4, Connack(True)) + encode(4, Pingresp()) + encode(4, PublishRun([2], [1], [b"a"], [b"\0stored"]))


def test_half_a_packet_is_just_while_more_is_on_its_way() -> None:
    """A client that was served, and leaves while messages of its session come; of one that was closed all has come."""
    served = Seen(4, ANSWERS[:-3], False, pinged=True, whole=False)
    judged(CASE, served)
    with pytest.raises(Unjust, match="half a packet"):
        judged(CASE, Seen(4, ANSWERS[:-3], True, pinged=True))
