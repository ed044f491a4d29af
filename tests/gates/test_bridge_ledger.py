"""The check of what bridges carried finds each way of doing it wrong, and nothing else."""

from __future__ import annotations

import pytest

from tests.broker.history import History
from tests.gates.bridge_ledger import Arrival, check
from tests.gates.gate import GateFailed


@pytest.fixture
def history() -> History:
    """Messages 0 to 5 of `once` at QoS 2, on two topics in turns, the last of which was not acknowledged; 0 and 1 of `again` at QoS 1, of
    which 1 was sent twice."""
    made = History()
    for publisher, count, qos in (("once", 6, 2), ("again", 2, 1)):
        for number in range(count):
            made.publish(publisher, f"a/{number % 2}", qos, 0)
            made.written(publisher, number)
            made.acknowledged(publisher, number, 1)
    made.sent["once", 5].acknowledged_ns = None
    made.written("again", 1)
    return made


def arrived(*numbers: int, publisher: str = "once") -> list[Arrival]:
    return [Arrival(f"{publisher}/{number}", publisher, number) for number in numbers]


ALL = [*arrived(0, 1, 2, 3, 4), *arrived(0, 1, publisher="again")]


def test_all_of_it_in_order_is_right(history: History) -> None:
    """Topics and publishers among each other in any order; what was not acknowledged may be there."""
    assert check("x", ALL, history, exactly_once=True, with_identity=True) == 0
    other = [*arrived(1, publisher="again"), *arrived(1, 0, 3, 2, 4, 5), *arrived(0, publisher="again")]
    assert check("x", other, history, exactly_once=True, with_identity=True) == 0


def test_what_was_sent_again_at_qos_1_may_be_stored_again(history: History) -> None:
    """It is another message of the store then."""
    assert check("x", [*ALL, Arrival("again/2", "again", 1)], history, exactly_once=True, with_identity=True) == 0


def test_where_it_is_not_promised_something_may_be_there_twice(history: History) -> None:
    """Under the same identity, where there is one."""
    again = [*ALL, *arrived(0, 2, 4)]
    assert check("x", again, history, exactly_once=False, with_identity=True) == 3
    nameless = [each._replace(identity="") for each in again]
    assert check("x", nameless, history, exactly_once=False, with_identity=False) == 3


@pytest.mark.parametrize(
    ("arrivals", "words"),
    [
        (ALL[1:], "1 are missing"),
        ([*ALL, *arrived(9)], "1 were never sent"),
        ([*arrived(2, 0, 1, 3, 4), *ALL[5:]], "message 0 of once on a/0 came for the first time after 2"),
        ([*ALL, ALL[0]], "1 messages are there twice, such as"),
        ([*ALL, Arrival("another", "once", 0)], "at QoS 2 is there as"),
        ([*ALL, Arrival("another", "again", 0)], "at QoS 1 is there as"),
    ],
)
def test_each_wrong_is_found(history: History, arrivals: list[Arrival], words: str) -> None:
    """With the name of the target in front."""
    with pytest.raises(GateFailed, match=words) as failed:
        check("lake", arrivals, history, exactly_once=True, with_identity=True)
    assert str(failed.value).startswith("lake: ")
