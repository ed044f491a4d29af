"""Asks a plugin what rules and grants leave to it, and keeps what waits for its word (access.plugin.decides).

A PUBLISH or SUBSCRIBE that is not known to be allowed or denied waits, and what comes behind it on this connection; so does a message to
a subscriber, and what follows it; and a CONNECT with a will.  Nobody else waits.  Who asks is in the parts: the core for what comes in,
sending and egress for what leaves, connecting for wills.

Always holds:
1. an answer counts for its connection only, and for `rights_cache_ms` at most; that for which somebody waits is used in the event that
   brings it, so whoever waits goes on;
2. a connection has at most AHEAD_MAX questions under way, and one for each of the four that it waits for;
3. nothing that a subscriber has is lost because nobody answers: it waits, and is asked for again every AGAIN_MS; a client that wants
   something is told no, or closed where a no would say that its message was taken;
4. beyond the bounds of a subscriber's queue what is not of a durable subscription, or is of QoS 0, is dropped and counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from access.asked import Action, Asked
from access.profile import Profile, RuledProfile
from access.rights import Right
from gateway.asker import FILTER, Asker, Key, Parcel
from gateway.connection import ASKED, Connection, Phase
from gateway.delaying import is_delayed, read_delay
from gateway.events import AskRight, RightTold
from gateway.groups import GroupMessage
from gateway.rights import publishing
from gateway.state import State
from mqtt.packets import MQTT_5, Item, Publish, PublishRun, Subscribe
from mqtt.topics import is_shared

AHEAD_MAX: Final = 32
AGAIN_MS: Final = 1_000
ANSWERS_MAX: Final = 100_000
"""Of all connections together; then the oldest do not count any more."""
_RECEIVE: Final = int(Right.SUBSCRIBE)
_SHARED_LEVELS: Final = 3
_ACTIONS: Final[dict[int, Action]] = {FILTER: "subscribe", _RECEIVE: "receive"}


class Asking:
    def __init__(self, state: State) -> None:
        self._state = state
        self._numbers = 0
        self._counting: deque[tuple[int, int, Asker, Key]] = deque()
        """Answers that count: until when, and of which number of their asker; the oldest first."""
        self._again: deque[tuple[int, int, Asker, Key]] = deque()
        """Questions of subscribers that nobody has answered: when to ask again."""
        self._renewed: list[Asker] = []
        self._once: list[tuple[int, Asker, Key]] = []
        """Answers that count to the end of this turn: those that never came, and those about the filters of a SUBSCRIBE that is taken now.
        Until it is, they are kept, as it needs all of them at once."""

    # ---------------------------------------------------------------- profiles
    def profile(self, connection: Connection, rules: Profile | None) -> Profile | None:
        """What a connection goes by from now on: these rules, and a plugin if they leave something to it."""
        asker = connection.asker
        leaves_some = isinstance(rules, RuledProfile) and rules.leaves_some
        if asker is None and not leaves_some:
            return rules
        if asker is None:
            asker = connection.asker = Asker(connection)
        self._state.askers.pop(asker.number, None)
        if asker.waits:
            self._renewed.append(asker)
        if not leaves_some:
            asker.renew(None, 0)
            return rules
        assert isinstance(rules, RuledProfile)
        self._numbers += 1
        asker.renew(rules, self._numbers)
        self._state.askers[asker.number] = asker
        return asker

    def renewed(self) -> list[Asker]:
        """Who waited under other rules: each is to go on, and asks again where it has to."""
        renewed, self._renewed = self._renewed, []
        return renewed

    # ---------------------------------------------------------------- answers
    def told(self, event: RightTold) -> Asker | None:
        """Whose answer this is, if it is one that is waited for."""
        state, key = self._state, event.key
        asker = state.askers.get(event.asker)
        if asker is None or key not in asker.asked:
            return None
        if not event.answered:
            return self._unanswered(asker, key)
        del asker.asked[key]
        asker.answers[key] = event.allow
        if key[0] != FILTER:
            self._counting.append((state.now_ms + state.options.rights_cache_ms, asker.number, asker, key))
        if len(self._counting) > ANSWERS_MAX:
            self._forget_oldest()
        return asker if key in (asker.awaits_in, asker.awaits_out, asker.awaits_refill, asker.awaits_will) else None

    def _unanswered(self, asker: Asker, key: Key) -> Asker | None:
        self._state.counters.rights_unanswered += 1
        if key in (asker.awaits_out, asker.awaits_refill):
            self._again.append((self._state.now_ms + AGAIN_MS, asker.number, asker, key))
        elif key in (asker.awaits_in, asker.awaits_will):
            del asker.asked[key]
            asker.answers[key] = False
            if key[0] != FILTER:
                self._once.append((asker.number, asker, key))
            return asker
        else:
            del asker.asked[key]  # Asked ahead: again when its turn comes.
        return None

    def forgotten(self) -> None:
        """Nothing that was said before counts any more."""
        while self._counting:
            self._forget_oldest()

    def turn(self, now_ms: int) -> None:
        for number, asker, key in self._once:
            if asker.number == number:
                asker.answers.pop(key, None)
        self._once.clear()
        while self._counting and self._counting[0][0] <= now_ms:
            self._forget_oldest()
        while self._again and self._again[0][0] <= now_ms:
            _, number, asker, key = self._again.popleft()
            if self._state.askers.get(number) is asker and key in asker.asked:
                del asker.asked[key]
                self._ask(asker, key)

    def next_ms(self) -> int | None:
        due = [rows[0][0] for rows in (self._counting, self._again) if rows]
        return min(due) if due else None

    def _forget_oldest(self) -> None:
        _, number, asker, key = self._counting.popleft()
        if asker.number == number:
            asker.answers.pop(key, None)

    # ---------------------------------------------------------------- what comes in
    def ready(self, connection: Connection, items: list[Item]) -> list[Item]:
        """What of these packets may be taken now; the others are held."""
        asker = connection.asker
        if asker is None:
            return items
        if asker.awaits_in is not None:
            connection.held += items
            return []
        if not asker.number:
            return items
        aliases = dict(connection.aliases)
        for index, item in enumerate(items):
            for at, key in enumerate(self._keys(item, aliases)):
                if key is not None and asker.unknown(key):
                    return self._hold(asker, items, index, at, key)
            if isinstance(item, Subscribe):
                self._once += [(asker.number, asker, (FILTER, row.filter)) for row in item.subscriptions]
        return items

    def release(self, connection: Connection) -> list[Item]:
        """What was held: the answer is there, or there are other rules."""
        asker = connection.asker
        if asker is None or asker.awaits_in is None or asker.awaits_in in asker.asked:
            return []
        asker.awaits_in = None
        held, connection.held = connection.held, []
        self._state.resume(connection, ASKED)
        return held

    def keeps(self, connection: Connection, why: str) -> bool:
        """A socket is gone: whether packets that came before its end have still to be taken."""
        asker = connection.asker
        if asker is None or asker.awaits_in is None or connection.phase is not Phase.ONLINE:
            return False
        asker.lost, connection.gone = why, True
        return True

    def has_no_word(self, asker: Asker) -> bool:
        """Whether it waits for a PUBLISH of 3.1.1: refused, that is acknowledged, and a message that nobody has judged would be lost."""
        key = asker.awaits_in
        return key is not None and key[0] != FILTER and key not in asker.asked and asker.connection.version != MQTT_5

    def _hold(self, asker: Asker, items: list[Item], index: int, at: int, key: Key) -> list[Item]:
        connection = asker.connection
        ready, held = items[:index], items[index:]
        first = held[0]
        if at and isinstance(first, PublishRun):
            ready.append(_part(first, slice(0, at)))
            held[0] = _part(first, slice(at, None))
        connection.held = held
        asker.awaits_in = key
        self._state.outbox.pause(connection, ASKED)
        self._ask(asker, key)
        aliases = dict(connection.aliases)
        self._ask_ahead(asker, (each for item in items for each in self._keys(item, aliases)))
        return ready

    def _keys(self, item: Item, aliases: dict[int, bytes]) -> Iterator[Key | None]:
        """One for each message of a run.  aliases: as they are when the item is taken."""
        if isinstance(item, PublishRun):
            for flags, topic in zip(item.flags, item.topics, strict=True):
                yield self._of_publish(flags, topic)
        elif isinstance(item, Publish):
            alias = item.properties.topic_alias
            topic = item.topic or aliases.get(alias or 0, b"")
            if alias and topic:
                aliases[alias] = topic
            yield self._of_publish(item.flags, topic) if topic else None
        elif isinstance(item, Subscribe):
            for row in item.subscriptions:
                # A shared one has to have its three levels, or it is refused without a question.
                yield None if is_shared(row.filter) and row.filter.count(b"/") < _SHARED_LEVELS - 1 else (FILTER, row.filter)

    def _of_publish(self, flags: int, topic: bytes) -> Key:
        delay_max_s = self._state.options.delayed_max_s
        delayed = delay_max_s is not None and is_delayed(topic)
        if delayed and delay_max_s is not None:
            topic, _ = read_delay(topic, delay_max_s)
        return int(publishing(flags, delayed)), topic

    # ---------------------------------------------------------------- a will
    def about_will(self, connection: Connection, right: Right, topic: bytes) -> bool:
        """Whether CONNECT has to wait for the word about its will."""
        asker = connection.asker
        if asker is None:
            return False
        key = int(right), topic
        asker.awaits_will = key if asker.unknown(key) else None
        if asker.awaits_will is not None:
            self._ask(asker, key)
        return asker.awaits_will is not None

    # ---------------------------------------------------------------- what leaves
    def has_room(self, asker: Asker, size: int) -> bool:
        options = self._state.options
        return len(asker.outgoing) < options.queue_count_max and asker.outgoing_bytes + size <= options.queue_bytes_max

    def later(
        self, asker: Asker, topic: bytes, size: int, send: Callable[[], object], *, droppable: bool, of_group: GroupMessage | None = None
    ) -> bool:
        """A message that is to be sent when it is known that it may be, behind all others that wait; False: it was dropped."""
        if droppable and not self.has_room(asker, size):
            self._state.counters.live_dropped_queue_full += 1
            return False
        asker.outgoing.append(Parcel(topic, size, send, of_group))
        asker.outgoing_bytes += size
        if asker.awaits_out is not None:
            self._ask_ahead(asker, iter([asker.outgoing[-1].key]))
        return True

    def drain(self, asker: Asker) -> None:
        """Send what waits, up to the first of which nothing is known."""
        outgoing = asker.outgoing
        if asker.awaits_out in asker.asked:
            return
        asker.awaits_out = None
        while outgoing:
            if asker.unknown(outgoing[0].key):
                asker.awaits_out = outgoing[0].key
                self._ask(asker, asker.awaits_out)
                self._ask_ahead(asker, (parcel.key for parcel in outgoing))
                return
            parcel = outgoing.popleft()
            asker.outgoing_bytes -= parcel.size
            if asker.connection.phase is Phase.ONLINE:
                parcel.send()

    def stalled(self, asker: Asker, topics: list[bytes]) -> None:
        """The window of an ephemeral session stays open, as nothing is known of the first of these topics."""
        asker.awaits_refill = (_RECEIVE, topics[0])
        self._ask(asker, asker.awaits_refill)
        self._ask_ahead(asker, ((_RECEIVE, topic) for topic in topics))

    # ---------------------------------------------------------------- within
    def _ask_ahead(self, asker: Asker, keys: Iterator[Key | None]) -> None:
        for key in keys:
            if len(asker.asked) >= AHEAD_MAX:
                return
            if key is not None and key not in asker.asked and asker.unknown(key):
                self._ask(asker, key)

    def _ask(self, asker: Asker, key: Key) -> None:
        if key in asker.asked:
            return
        asker.asked[key] = None
        self._state.counters.rights_asked += 1
        right, topic = key
        connection = asker.connection
        asked = Asked(connection.identity, connection.client.decode(), _ACTIONS.get(right, "publish"), topic.decode())
        self._state.outbox.effects.append(AskRight(asker.number, key, asked))


def _part(run: PublishRun, rows: slice) -> PublishRun:
    return PublishRun(run.flags[rows], run.packet_ids[rows], run.topics[rows], run.bodies[rows])
