"""gateway.wheel against a list of deadlines, and a thousand connections that are late together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.wheel import BUCKET_MS, TOKENS_MAX, Wheel
from tests.gateway.scripted import Shell

DELAYS = st.lists(st.integers(0, 3 * BUCKET_MS), max_size=3 * TOKENS_MAX)


@given(st.lists(st.tuples(st.integers(0, 2 * BUCKET_MS), DELAYS), max_size=6))
def test_each_token_comes_once_and_in_time(turns: list[tuple[int, list[int]]]) -> None:
    """Not before its time; within a bucket of it, if no more than a turn's worth is late; and it always says when to ask again."""
    wheel: Wheel[tuple[int, int]] = Wheel()
    now_ms, waiting, number = 0, [], 0
    for passed_ms, delays in [*turns, *[(BUCKET_MS, [])] * 12]:
        now_ms += passed_ms
        for delay_ms in delays:
            waiting.append((now_ms + delay_ms, number))
            wheel.after(delay_ms, waiting[-1])
            number += 1
        came = wheel.turn(now_ms)
        assert len(came) <= TOKENS_MAX
        assert all(due_ms <= now_ms for due_ms, _ in came)
        for token in came:
            waiting.remove(token)
        overdue = [due_ms for due_ms, _ in waiting if due_ms <= now_ms - BUCKET_MS]
        assert not overdue or len(came) == TOKENS_MAX
        next_ms = wheel.next_ms()
        assert (next_ms is None) == (not waiting)
        assert next_ms is None or next_ms - BUCKET_MS <= min(due_ms for due_ms, _ in waiting)
    while waiting:
        for token in wheel.turn(now_ms):
            waiting.remove(token)
    assert wheel.turn(now_ms) == [] and wheel.next_ms() is None


def test_many_who_are_late_together_do_not_hold_up_the_others() -> None:
    """A turn closes TOKENS_MAX of them, and asks to be woken for the next at once (found with 5,000 sockets that say nothing)."""
    shell = Shell()
    silent = [shell.client() for _ in range(5 * TOKENS_MAX)]
    wait_ms = shell.core._state.options.connect_wait_ms
    shell.turn(after_ms=wait_ms + BUCKET_MS)
    for closed in range(TOKENS_MAX, len(silent) + 1, TOKENS_MAX):
        assert sum(client.closed is not None for client in silent) == closed
        shell.turn()
    assert {client.closed for client in silent} == {"no CONNECT in time"}
    assert shell.core.counters.connections_timed_out == len(silent)
