"""The receiving end of the numbered links of one shard.

A frame is taken only in sequence; its number and its answer are rows of the record that carries its effects, so after any
crash of either end a frame sent again finds its old answer (PROTOCOLS 4).  Answers live in a ring of slots per sender:
a sender has at most FRAMES_UNANSWERED_MAX frames without an answer, so the slot of frame n is free when n + MAX arrives.

Holds after every call (see check):
1. `last` is the number of the newest frame taken; every older one was taken before it;
2. an answer is told only when it is `ready`: its record is committed and what it waits for has happened;
3. answers of one sender leave in the order of their frames.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from shards.draft import Draft
from shards.engine import HOME_FAMILY, Engine
from shards.frames import FRAMES_UNANSWERED_MAX, Answer, Reply, decode_replies, encode_replies
from shards.rows import REFUSED_SENDER, SLOT, pack_row, successor, unpack_row

FORGET_SENDER_AFTER_US = 300_000_000
KEEPS_NOTHING = "admin-"
"""Names of senders that begin so are of commands, each with a name of its own: what they ask may be done twice, so they need not be
refused for ever, and no row is left of them."""


@dataclass(slots=True)
class Pending:
    """One taken frame whose answer has not left.  outbox: the answer also waits until retained messages up to here are home."""

    number: int
    replies: list[Reply]
    position: int
    outbox: int


@dataclass(slots=True)
class Sender:
    """One sender incarnation: what was taken from it and what it may still ask again."""

    name: str
    link: int | None = None
    reached: int = 0
    """The newest frame that came over this link.  A later one was answered over an older link, if at all, and comes again."""
    last: int = 0
    heard_us: int = 0
    waiting: deque[Pending] = field(default_factory=deque)
    told: dict[int, Answer] = field(default_factory=dict)


Verdict = Literal["next", "repeat", "gap"]


class Inbox:
    """All senders of one shard."""

    def __init__(self, engine: Engine, outbox_at_open: int = 0) -> None:
        """outbox_at_open: retained messages up to this position were on their way home when the store was closed (0: none).
        Any answer of before may have waited for them, so all of them wait again, and later ones behind them."""
        self._senders: dict[str, Sender] = {}
        self._refused: dict[str, None] = {}
        self._load(engine)
        if outbox_at_open:
            for sender in self._senders.values():
                answers = sorted(sender.told.values())
                sender.told.clear()
                sender.waiting.extend(Pending(answer.number, answer.replies, 0, outbox_at_open) for answer in answers)

    def _load(self, engine: Engine) -> None:
        start, end = SLOT, successor(SLOT)
        while rows := engine.scan(HOME_FAMILY, start, end, 1000):
            for key, value in rows:
                name = key[1:-1].decode()
                number, replies = unpack_row(value)
                sender = self._senders.get(name)
                if sender is None:
                    sender = self._senders[name] = Sender(name)
                sender.told[number % FRAMES_UNANSWERED_MAX] = Answer(number, decode_replies(replies))
                sender.last = max(sender.last, number)
            start = rows[-1][0] + b"\x00"
        for key, _ in engine.scan(HOME_FAMILY, REFUSED_SENDER, successor(REFUSED_SENDER), 100_000):
            self._refused[key[1:].decode()] = None

    def senders(self) -> list[Sender]:
        return list(self._senders.values())

    def refuses(self, name: str) -> bool:
        return name in self._refused

    def knows(self, name: str) -> bool:
        return name in self._senders

    def linked(self, name: str) -> int | None:
        """The link of this sender, if it has one."""
        known = self._senders.get(name)
        return known.link if known is not None else None

    def sender(self, name: str, now_us: int) -> Sender:
        sender = self._senders.get(name)
        if sender is None:
            sender = self._senders[name] = Sender(name)
        sender.heard_us = now_us
        return sender

    def begin(self, now_us: int) -> None:
        """The shard's time begins: silence before it was open counts for nothing."""
        for sender in self._senders.values():
            sender.heard_us = now_us

    def sender_heard(self, name: str, now_us: int) -> int:
        """When this sender was last heard; one that only home rows know of counts from now on."""
        known = self._senders.get(name)
        if known is None:
            known = self._senders[name] = Sender(name, heard_us=now_us)
        return known.heard_us

    def verdict(self, sender: Sender, number: int) -> Verdict:
        if number == sender.last + 1:
            return "next"
        return "repeat" if number <= sender.last else "gap"

    def told(self, sender: Sender, number: int) -> Answer | None:
        """The answer of a repeated frame, when it has one already."""
        answer = sender.told.get(number % FRAMES_UNANSWERED_MAX)
        return answer if answer is not None and answer.number == number else None

    def take(self, draft: Draft, sender: Sender, number: int, replies: list[Reply], outbox: int) -> Pending:
        """Frame `number` with these replies becomes part of the record in the making.

        The slot row is not read back while the process lives, so it goes past the overlay straight into the ops.
        """
        assert number == sender.last + 1, f"sender {sender.name}: frame {number} taken after {sender.last}"
        sender.last = number
        slot = number % FRAMES_UNANSWERED_MAX
        key = SLOT + sender.name.encode() + bytes((slot,))
        draft.ops.append((HOME_FAMILY, key, pack_row((number, encode_replies(replies)))))
        sender.told.pop(slot, None)
        pending = Pending(number, replies, 0, outbox)
        sender.waiting.append(pending)
        return pending

    def release(self, watermark: int, outbox_done: int) -> list[tuple[int, Answer]]:
        """Answers that may leave now, with the link of each; the others wait to be asked again, which keeps them in order: an
        answer before this one may have been lost with the older link."""
        out: list[tuple[int, Answer]] = []
        for sender in self._senders.values():
            waiting = sender.waiting
            while waiting and waiting[0].position <= watermark and waiting[0].outbox <= outbox_done:
                pending = waiting.popleft()
                answer = Answer(pending.number, pending.replies)
                sender.told[pending.number % FRAMES_UNANSWERED_MAX] = answer
                if sender.link is not None and pending.number <= sender.reached:
                    out.append((sender.link, answer))
        return out

    def forget_silent(self, draft: Draft, now_us: int) -> list[str]:
        """Erase senders not heard for 5 minutes; they are refused for ever after, but for commands.  Returns their names."""
        silent = [
            sender
            for sender in self._senders.values()
            if sender.link is None and not sender.waiting and now_us - sender.heard_us > FORGET_SENDER_AFTER_US
        ]
        for sender in silent:
            name = sender.name.encode()
            for slot in range(FRAMES_UNANSWERED_MAX):
                if slot in sender.told or sender.last >= FRAMES_UNANSWERED_MAX:
                    draft.ops.append((HOME_FAMILY, SLOT + name + bytes((slot,)), None))
            del self._senders[sender.name]
            if not sender.name.startswith(KEEPS_NOTHING):
                draft.ops.append((HOME_FAMILY, REFUSED_SENDER + name, b""))
                self._refused[sender.name] = None
        return [sender.name for sender in silent]

    def check(self) -> None:
        for sender in self._senders.values():
            numbers = [pending.number for pending in sender.waiting]
            assert numbers == list(range(sender.last - len(numbers) + 1, sender.last + 1)), (sender.name, numbers, sender.last)
