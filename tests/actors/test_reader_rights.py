"""Rules and the reader: a token is somebody who is asked about like everybody else."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from access.rules import CLOSED, Access, compile_access
from access.rules_file import parse_rules
from actors.reader.access import Keys
from actors.reader.limits import Pace
from config.pipeline import Token
from holdfast_spark.protocol import Refused
from tests.actors.calling import caller
from tests.actors.served import said, served

SECRET = "secret"
DIGEST = hashlib.sha256(SECRET.encode()).hexdigest()


def test_what_the_rules_deny_no_token_may_and_what_they_allow_beyond_it_it_may() -> None:
    """Its filters stand behind the rules of the file; writing needs `write` all the same, and of the broker's own token nobody is asked."""
    text = """version = 1
[[rule]]
deny = ["replay"]
topics = ["a/secret/#"]
[[rule]]
deny = ["retain"]
topics = ["a/#"]
how = ["pipeline"]
[[rule]]
allow = ["all"]
topics = ["b/#"]
users = ["pipeline/lake"]
"""
    keys = Keys("own", [Token(name="lake", sha256=DIGEST, filters=("a/#",), write=True)])
    before = keys.of("secret")
    assert before is not None
    keys.judge(compile_access(1, parse_rules(text), claims=False, decides=False))
    lake, own = keys.of("secret"), keys.of("own")
    assert lake is not None and own is not None and keys.now(before) is lake is not before
    lake.check_filters([b"a/open/#", b"b/#"])
    lake.check_topics([b"a/x", b"b/x"], [0, 1])
    for denied in (b"a/secret/x", b"a/#", b"c"):
        with pytest.raises(Refused):
            lake.check_filters([denied])
    with pytest.raises(Refused):
        lake.check_topics([b"a/x"], [1])
    own.check_filters([b"#"])
    own.check_topics([b"a/x"], [1])
    keys.judge(CLOSED)
    shut = keys.of("secret")
    assert shut is not None and keys.of("own") is not None
    with pytest.raises(Refused):
        shut.check_filters([b"b/x"])
    keys.change([Token(name="lake", sha256=DIGEST, filters=("a/#",))])
    reading = keys.of("secret")
    assert reading is not None
    with pytest.raises(Refused):
        reading.check_topics([b"b/x"], [0])


def test_what_rules_leave_to_a_plugin_no_token_may() -> None:
    """The reader has no way to one: it goes by rules and by what its tokens bring along."""
    keys = Keys("own", [Token(name="lake", sha256=DIGEST, filters=("a/#",), write=True)])
    for rules in (None, parse_rules("version = 1\n[[rule]]\nallow = ['replay']\ntopics = ['b']\n")):
        keys.judge(compile_access(1, rules, claims=False, decides=True))
        lake = keys.of("secret")
        assert lake is not None
        lake.check_filters([b"a/#"] if rules is None else [b"a/#", b"b"])
        lake.check_topics([b"a/x"], [1])
        with pytest.raises(Refused):
            lake.check_filters([b"c"])
        with pytest.raises(Refused):
            lake.check_topics([b"c"], [0])


class _Revoking(Pace):
    """Takes the right away when the second block is about to be sent."""

    def __init__(self, keys: Keys, access: Access) -> None:
        super().__init__(1)
        self._keys = keys
        self._access = access
        self.blocks = 0

    def wait_for(self, size: int) -> float:
        self.blocks += 1
        if self.blocks == 2:
            self._keys.judge(self._access)
        return 0.0


def test_a_scan_that_is_under_way_ends_when_the_right_goes() -> None:
    """No further block is sent; what the rules allow by then is asked for each of them."""
    text = 'version = 1\n[[rule]]\ndeny = ["replay"]\ntopics = ["plant/1/secret"]\n'
    access = compile_access(1, parse_rules(text), claims=False, decides=False)
    messages = [said(b"plant/1/t", b"x" * 500) for _ in range(40)]
    with served(*messages, tokens=[Token(name="lake", sha256=DIGEST, filters=("plant/1/#",))]) as broker:
        pace = _Revoking(broker.desk.keys, access)
        broker.desk = replace(broker.desk, pace=pace)
        broker.restart()
        with caller(broker, SECRET) as reader:
            (unit,) = reader.plan("plant/1/#")
            answer = reader.scan(broker, unit, "plant/1/#")
            assert answer.end["error"] == "FORBIDDEN" and 0 < len(answer.rows) < 40 and pace.blocks == 2
            pace.blocks = 2
            assert len(reader.scan(broker, unit, "plant/1/t").rows) == 40
