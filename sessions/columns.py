"""What messages become in a batch: how many have which QoS, and their packet identifiers and numbers as columns (sessions.window)."""

from __future__ import annotations

from collections.abc import Sequence

from sessions.bodies import QOS1, QOS2
from sessions.session import Session

_QOS_BITS = QOS1 | QOS2


def counts(firsts: bytes) -> tuple[int, int]:
    """How many of these are QoS 1 and QoS 2 PUBLISH packets; DUP is not set yet."""
    return firsts.count(0x32) + firsts.count(0x33), firsts.count(0x34) + firsts.count(0x35)


def columns(session: Session, firsts: bytes, first1: int, first2: int) -> tuple[list[int], Sequence[int], int]:
    """(packet ids, sequence numbers, QoS when all have the same one above 0, else 0)."""
    count1, count2 = counts(firsts)
    if count1 == len(firsts):
        return session.one.packet_ids(first1, count1), range(first1, first1 + count1), 1
    if count2 == len(firsts):
        return session.two.packet_ids(first2, count2), range(first2, first2 + count2), 2
    packet_ids: list[int] = []
    numbers: list[int] = []
    for first in firsts:
        qos = first & _QOS_BITS
        if qos == QOS1:
            numbers.append(first1)
            packet_ids.append(session.one.packet_id(first1))
            first1 += 1
        elif qos == QOS2:
            numbers.append(first2)
            packet_ids.append(session.two.packet_id(first2))
            first2 += 1
        else:
            numbers.append(0)
            packet_ids.append(0)
    return packet_ids, numbers, 0
