"""Connections come and go: owner tokens, loading, taking over, detaching, forgetting.

A session in memory that its home knows to be unchanged is reused: its connection is replaced, and what is not committed yet
is committed in the name of the new one.  That is safe because the token proves that nobody else wrote, and because frames of
the replaced connection are not heard any more.  When it is not known (a commit was refused, or a SUBSCRIBE was under way),
the session is loaded anew.

    Attach -> wait for the token -> wait for a commit under way -> reuse, or load -> Attached
    Detach -> commit what is changed -> forget

Holds: one client has at most one attached connection and one that waits; nothing is loaded while a commit of the same
session is under way.
"""

from __future__ import annotations

from collections.abc import Callable

from mqtt.packets import MQTT_5
from mqtt.reason import ReasonCode
from sessions.acks import Acks
from sessions.committing import Committing, Home
from sessions.frames import ROUTED, Attach, Attached, SessionClosed
from sessions.given import Givens, in_groups
from sessions.loading import restore
from sessions.options import ReadOverrides
from sessions.outstanding import goes_on
from sessions.reading import Reading
from sessions.redelivery import Redelivery
from sessions.routes import Routes
from sessions.session import Session
from sessions.state import GROUPS, State
from sessions.subscriptions import Subscriptions
from shards.frames import Load, Loaded, Own, Owned, Reply, Told


class Waiting:
    """A connection that is to be attached."""

    __slots__ = ("frame", "home", "link", "queries")

    def __init__(self, link: int, frame: Attach, home: Home) -> None:
        self.link = link
        self.frame = frame
        self.home = home
        self.queries: dict[int, int] = {}


class Attaching:
    def __init__(
        self, state: State, homes: dict[int, Home], committing: Committing, routes: Routes, reading: Reading,
        subscriptions: Subscriptions, acks: Acks, redelivery: Redelivery, givens: Givens,
    ) -> None:  # fmt: skip
        self._state = state
        self._homes = homes
        self._committing = committing
        self._routes = routes
        self._reading = reading
        self._subscriptions = subscriptions
        self._acks = acks
        self._redelivery = redelivery
        self._givens = givens
        self._waiting: dict[bytes, Waiting] = {}
        self.owner_changed: Callable[[Home], None]
        """Told when a home has given a token, and when that is worth nothing any more."""

    # ---------------------------------------------------------------- owning
    def own(self, home: Home) -> None:
        if not home.token and not home.asked:
            home.asked = True
            self._state.ask(home.shard, [Own()], lambda replies: self._owned(home, replies))

    def _owned(self, home: Home, replies: list[Reply]) -> None:
        (owned,) = replies
        assert isinstance(owned, Owned)
        home.asked = home.deposed = False
        if owned.token < home.newest:
            # Somebody came behind us before we had the answer.
            home.deposed = True
            if home.heir or any(waiting.home is home for waiting in self._waiting.values()):
                self.own(home)
            return
        home.token = home.newest = owned.token
        home.heir = False
        home.last_sub = 0
        home.groups = owned.groups
        for client, sub_id, filter in owned.work:
            self._routes.remove(home, client, sub_id, filter)
        for waiting in [waiting for waiting in self._waiting.values() if waiting.home is home]:
            self._go_on(waiting)
        self.owner_changed(home)

    def superseded(self, home: Home, owner: int, heir: bool = False) -> None:
        """Somebody was given the token `owner`.  heir: and is not linked any more."""
        if owner > home.newest:
            home.newest, home.heir = owner, heir
        elif owner == home.newest:
            home.heir |= heir
        if owner > home.token:
            self.replaced(home)
            if home.heir:
                self.own(home)

    def replaced(self, home: Home) -> None:
        """Another process owns the sessions of this home now: nothing we know of them is true any more (PROTOCOLS 6)."""
        if not home.token:
            return
        self._state.counters.owner_replaced += 1
        home.token = 0
        home.deposed = True
        home.dirty.clear()
        home.done.clear()
        waiting_here = [waiting for waiting in self._waiting.values() if waiting.home is home]
        for waiting in [waiting for waiting in waiting_here if waiting.link == GROUPS]:
            # No client wants that: whoever is the owner now has the groups.
            self._stop_waiting(waiting)
            waiting_here.remove(waiting)
        for waiting in waiting_here:
            # What it is being loaded from may be changed by the other owner; it is loaded again under the next token.
            self._state.forget_queries(waiting)
        for session in [session for session in self._state.sessions.values() if session.home == home.shard]:
            self._close(session, ReasonCode.SERVER_SHUTTING_DOWN)
            self._drop(session)
        self.owner_changed(home)
        if waiting_here:
            self.own(home)

    def shard_linked(self, shard: int) -> None:
        home = self._homes.get(shard)
        if home is not None and not home.deposed:
            self.own(home)

    # ---------------------------------------------------------------- attaching
    def attach(self, link: int, frame: Attach) -> None:
        shard = self._state.slots.shard_of(frame.client)
        home = self._homes.get(shard)
        if home is None:
            self._refuse(link, frame)
            return
        if frame.owner > home.token:
            # We have been replaced and did not know: another owner may have written what we have in memory since.
            self.superseded(home, frame.owner)
        older = self._waiting.get(frame.client)
        if older is not None:
            if frame.conn < older.frame.conn:
                self._refuse(link, frame)
                return
            self._stop_waiting(older)
            if frame.conn > older.frame.conn:
                self._refuse(older.link, older.frame)
        waiting = self._waiting[frame.client] = Waiting(link, frame, home)
        self._go_on(waiting)

    def _go_on(self, waiting: Waiting) -> None:
        """The next step of a connection that waits, if it can be taken now."""
        frame, home = waiting.frame, waiting.home
        if not home.token:
            self.own(home)
            return
        session = self._state.sessions.get(frame.client)
        if session is not None:
            if frame.conn < session.conn:
                self._stop_waiting(waiting)
                self._refuse(waiting.link, frame)
                return
            if session.attached:
                self._state.counters.taken_over += 1
                if session.conn == frame.conn:
                    self._detach(session)  # the same connection over a new link; the old link has not been heard to break yet
                else:
                    self._redelivery.ended(session)
                    self._close(session, ReasonCode.SESSION_TAKEN_OVER)
            if session.session_id == frame.session_id:
                if session.committing:
                    return
                if session.reload and session.has_changes and not session.uncertain:
                    self._committing.soon(session)
                    return
                if not session.uncertain and not session.reload:
                    self._stop_waiting(waiting)
                    if not goes_on(session, frame):
                        self._refuse(waiting.link, frame)
                        self.settled(session)
                        return
                    self._state.counters.resumed_in_ram += 1
                    self._attached(session, waiting)
                    return
            self._drop(session)
        self._state.query(home.shard, Load(frame.client), waiting, lambda told: self._loaded(waiting, told))

    def _loaded(self, waiting: Waiting, told: Told | None) -> None:
        frame = waiting.frame
        self._stop_waiting(waiting)
        if not isinstance(told, Loaded) or told.session_id != frame.session_id or told.conn > frame.conn:
            # Somebody was faster, or the session has ended, or the shard could not say.
            self._refuse(waiting.link, frame)
            return
        session, unfinished = restore(self._state, frame.client, frame.session_id, waiting.home.shard, told.rows, frame.moved)
        if not goes_on(session, frame):
            self._refuse(waiting.link, frame)
            return
        self._state.sessions[frame.client] = session
        self._attached(session, waiting)
        for sub in unfinished:
            self._subscriptions.remove_unfinished(session, sub)
        if session.has_changes:
            self._committing.soon(session)

    def _attached(self, session: Session, waiting: Waiting) -> None:
        state, frame = self._state, waiting.frame
        session.conn, session.link, session.attached = frame.conn, waiting.link, True
        session.reads = state.reads.changed_by(ReadOverrides(frame.batch_size, frame.idle_poll_ms, frame.renew_streams_ms))
        state.by_conn[frame.conn] = session
        state.outputs[waiting.link].conns[frame.conn] = session
        state.counters.attached += 1
        self._subscriptions.attaching(session)
        subscriptions = [
            (sub.terms.filter, sub.terms.qos, sub.terms.options | (ROUTED if sub.routed and not sub.terms.qos else 0), sub.terms.identifier)
            for sub in session.subs.values()
            if not sub.ends
        ]
        state.to_gateway(
            waiting.link, Attached(frame.conn, 0, subscriptions, lost=self._tell_loss(session, 0 if frame.moved else frame.version))
        )
        self._reading.attach(session, frame.receive_max)
        self._acks.resume(session, frame)
        if session.given.open and frame.refused:
            self._givens.acked(session)
        if session.has_changes:
            self._committing.soon(session)

    def _tell_loss(self, session: Session, version: int) -> bool:
        """Whether CONNACK is to say that messages were lost: the first one that can, and then no more until there is another loss."""
        if not session.untold or version != MQTT_5:
            return False
        session.untold, session.progress_dirty = False, True
        return True

    def _refuse(self, link: int, frame: Attach) -> None:
        self._state.counters.attach_refused += 1
        self._state.to_gateway(link, Attached(frame.conn, ReasonCode.SERVER_UNAVAILABLE, []))

    def _stop_waiting(self, waiting: Waiting) -> None:
        self._state.forget_queries(waiting)
        del self._waiting[waiting.frame.client]

    # ---------------------------------------------------------------- detaching
    def gateway_lost(self, link: int) -> None:
        output = self._state.outputs.pop(link)
        for session in list(output.conns.values()):
            self.detach(session)
        for waiting in [waiting for waiting in self._waiting.values() if waiting.link == link]:
            self._stop_waiting(waiting)

    def detach_conn(self, link: int, conn: int) -> None:
        session = self._state.by_conn.get(conn)
        if session is not None and session.link == link:
            self._redelivery.ended(session)
            self.detach(session)
            return
        for waiting in self._waiting.values():
            if waiting.frame.conn == conn and waiting.link == link:
                self._stop_waiting(waiting)
                return

    def close(self, session: Session, code: ReasonCode) -> None:
        """End the connection of a session for a reason of ours."""
        self._close(session, code)
        self.settled(session)

    def detach(self, session: Session) -> None:
        self._detach(session)
        self.settled(session)

    def _close(self, session: Session, code: ReasonCode) -> None:
        if session.attached:
            link, conn = session.link, session.conn
            self._detach(session)
            self._state.to_gateway(link, SessionClosed(conn, code))

    def _detach(self, session: Session) -> None:
        state = self._state
        session.attached = False
        del state.by_conn[session.conn]
        output = state.outputs.get(session.link)
        if output is not None:
            output.forget(session.conn)
        state.stirred.pop(session, None)
        session.reload = in_groups(session)
        self._reading.detach(session)
        self._givens.detached(session)
        self._subscriptions.detached(session)
        session.sends = False
        session.progress_dirty |= session.said_online
        if session.has_changes:
            self._committing.soon(session)

    def _drop(self, session: Session) -> None:
        """Forget it at once: what it has not committed is not to be committed any more."""
        session.drop()
        del self._state.sessions[session.client]
        self._homes[session.home].dirty.pop(session, None)

    # ---------------------------------------------------------------- CommitListener
    def refused(self, session: Session, code: int) -> None:
        """The home knows a newer connection, or the session has ended: what we hold is not true any more."""
        self._close(session, ReasonCode.SESSION_TAKEN_OVER)
        self._drop(session)
        waiting = self._waiting.get(session.client)
        if waiting is not None:
            self._go_on(waiting)

    def settled(self, session: Session) -> None:
        """Nothing of it is under way: hand it to the connection that waits for it, or forget it when it is not needed."""
        if session.attached or session.committing or session.dropped:
            return
        waiting = self._waiting.get(session.client)
        if waiting is not None:
            self._go_on(waiting)
        elif not session.has_changes:
            self._drop(session)

    def waits(self, client: bytes) -> bool:
        return client in self._waiting

    def check(self) -> None:
        for client, waiting in self._waiting.items():
            assert waiting.frame.client == client and waiting.link in self._state.outputs
