"""Sequence numbers and packet identifiers of one track of a session.

A session has two tracks, QoS 1 and QoS 2.  Numbers begin at 1 and have no holes; a packet identifier is the number modulo
the identifiers of its track: 1 to 0x7FFF for QoS 1, 0x8000 to 0xFFFF for QoS 2.  So an identifier tells its track, and no
table of identifiers is needed.  Zero is not an identifier, which is why QoS 1 has one identifier less.

Holds after every call (see check):
1. committed < next, committed <= out < next, out <= sent < next;
2. `done` holds what was finished out of order: above committed + 1, below next;
3. fewer than SPAN_MAX + 1 numbers are open, so no identifier stands for two of them.
"""

from __future__ import annotations

SPAN_MAX = (1 << 15) - 3
"""Numbers of one track that may be assigned and not finished."""


class Track:
    """committed: all numbers up to it are finished.  next: the first that is not assigned.  sent: all up to it were sent
    on some connection.  out: all up to it were sent on the present one, or need not be."""

    __slots__ = ("base", "committed", "done", "modulus", "next", "out", "qos", "sent", "shift")

    def __init__(self, qos: int, committed: int = 0, following: int = 1, sent: int = 0) -> None:
        self.qos = qos
        self.committed = committed
        self.next = following
        self.sent = sent
        self.out = committed
        self.done: dict[int, None] = {}
        # The identifier of number n is base + (n - shift) % modulus: for QoS 2, 0x8000 | n & 0x7FFF.
        self.base, self.shift, self.modulus = (1, 1, 0x7FFF) if qos == 1 else (0x8000, 0, 0x8000)

    @property
    def open(self) -> int:
        """Numbers that are assigned and may not be assigned again yet."""
        return self.next - 1 - self.committed

    def packet_ids(self, first: int, count: int) -> list[int]:
        start = self.base + (first - self.shift) % self.modulus
        end = self.base + self.modulus
        if start + count <= end:
            return list(range(start, start + count))
        return [*range(start, end), *range(self.base, start + count - self.modulus)]

    def packet_id(self, number: int) -> int:
        return self.base + (number - self.shift) % self.modulus

    def number_of(self, packet_id: int) -> int:
        """The number above committed that has this identifier; it may not be assigned or sent."""
        first = self.committed + 1
        return first + (packet_id - self.base + self.shift - first) % self.modulus

    def is_open(self, number: int) -> bool:
        """Sent on this connection and not finished."""
        return self.committed < number <= self.out and number not in self.done

    def is_finished(self, number: int) -> bool:
        return number <= self.committed or number in self.done

    def assign(self, count: int) -> int:
        """The first of `count` new numbers."""
        first = self.next
        self.next = first + count
        return first

    def finish(self, number: int) -> bool:
        """The delivery of this open number is over; whether that moved `committed`."""
        if number != self.committed + 1:
            self.done[number] = None
            return False
        done = self.done
        while done and number + 1 in done:
            number += 1
            del done[number]
        self.committed = number
        self.reached(number)
        return True

    def finish_run(self, packet_ids: list[int]) -> bool:
        """Finish a run of consecutive identifiers that begins at the oldest open number, all at once.

        False, and nothing done, for every other list: then each is looked at by itself.
        """
        start, count = packet_ids[0], len(packet_ids)
        first = self.committed + 1
        if self.done or start != self.packet_id(first) or self.committed + count > self.out:
            return False
        if packet_ids[-1] != start + count - 1 or (count > 2 and packet_ids != list(range(start, start + count))):
            return False
        self.committed += count
        return True

    def reconnect(self) -> None:
        """Another connection: nothing is sent on it yet."""
        self.out = self.committed

    def reached(self, number: int) -> None:
        """Everything up to here was sent on this connection, or need not be."""
        if number > self.out:
            self.out = number
            if number > self.sent:
                self.sent = number

    def may_be_sent(self) -> None:
        """What is assigned so far: a process of ours that has died may have sent it."""
        self.sent = self.next - 1

    def check(self) -> None:
        assert self.committed <= self.out <= self.sent < self.next, (self.committed, self.out, self.sent, self.next)
        assert all(self.committed + 1 < number < self.next for number in self.done)
        assert self.open <= SPAN_MAX, f"{self.open} numbers of QoS {self.qos} are open"
