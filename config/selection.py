"""Which sessions are durable and which messages are stored for them: zones, and the persistence filter.

Only declares and checks one zone by itself; that its listeners are there, and that something is in it, by `config.schema`; names of zones
and how many there may be by `config.load`, which knows where they come from.  What a zone means is decided in `gateway.zones` and
`sessions.options`.
"""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from config.fields import Flag, Section, Whole, conflict, setting
from config.values import Duration

ZONES_MAX = 64

_LISTENERS_ALLOWED = 'a list of names of listeners, such as ["tcp"]'
_USERS_ALLOWED = 'a list of user names, such as ["meter", "gauge"]'
_CLIENTS_ALLOWED = 'a list of texts that client ids begin with, such as ["meter-", "gauge-"]'
_TOPICS_ALLOWED = 'a list of texts that topics begin with, without # and +, such as ["alarms/", "meters/hall 3/"]'

Texts = tuple[str, ...]


def _check_topics(key: str, prefixes: Texts) -> None:
    if any(not prefix or set(prefix) & set("#+\0") for prefix in prefixes):
        raise conflict(key, _TOPICS_ALLOWED)


def _check_texts(key: str, texts: Texts, allowed: str) -> None:
    if any(not text or "\0" in text for text in texts):
        raise conflict(key, allowed)


class Persistence(Section):
    min_qos: Whole = setting(
        1,
        "Messages published at a lower QoS are not stored for durable sessions. QoS 0 is the business of "
        "`durable_storage.messages.store_qos0`. What is not stored still goes, at QoS 0, to durable sessions that are online.",
        unit="QoS",
        ge=1,
        le=2,
    )
    topic_prefixes: Texts = setting(
        (),
        "Only messages of topics that begin with one of these are stored. Empty: of every topic. Those of other topics are answered "
        "like messages that no durable session wants, and go live.",
        unit="topics",
        allowed=_TOPICS_ALLOWED,
    )
    except_topic_prefixes: Texts = setting(
        (),
        "Messages of topics that begin with one of these are not stored, whatever `topic_prefixes` says. For values that are stale "
        "after a second, so that storing them is a waste.",
        unit="topics",
        allowed=_TOPICS_ALLOWED,
    )

    @model_validator(mode="after")
    def _texts(self) -> Self:
        _check_topics("topic_prefixes", self.topic_prefixes)
        _check_topics("except_topic_prefixes", self.except_topic_prefixes)
        return self


class ZoneSessions(Section):
    """What a zone sets differently from `durable_sessions`; unset: as there."""

    enable: Flag | None = setting(
        None,
        "Whether sessions with an expiry above 0 of connections in this zone are durable; for `topic_prefixes`, whether messages of these "
        "topics are stored for durable sessions.",
        allowed="true or false",
    )
    batch_size: Whole | None = setting(
        None,
        "As `durable_sessions.batch_size`.",
        unit="messages",
        ge=1,
        le=10_000,
        allowed="a whole number from 1 to 10000",
        effect="at once",
    )
    idle_poll_interval: Duration | None = setting(None, "As `durable_sessions.idle_poll_interval`.", ge=100, effect="at once")
    renew_streams_interval: Duration | None = setting(None, "As `durable_sessions.renew_streams_interval`.", ge=0, effect="at once")


class Zone(Section):
    listeners: Texts = setting(
        (),
        "Connections that came in by one of these listeners are in the zone.",
        unit="listeners",
        allowed=_LISTENERS_ALLOWED,
        effect="at once",
    )
    users: Texts = setting(
        (),
        "Connections of these users are in the zone: by the name that they came in with, however they did (docs/access.md).",
        unit="user names",
        allowed=_USERS_ALLOWED,
        effect="at once",
    )
    client_id_prefixes: Texts = setting(
        (),
        "Connections of clients whose id begins with one of these are in the zone.",
        unit="client ids",
        allowed=_CLIENTS_ALLOWED,
        effect="at once",
    )
    topic_prefixes: Texts = setting(
        (),
        "Topics that begin with one of these are in the zone: subscriptions whose filter begins so, and messages to such topics, "
        "whoever the client is.",
        unit="topics",
        allowed=_TOPICS_ALLOWED,
    )
    durable_sessions: ZoneSessions = setting(ZoneSessions(), "What is different for what is in the zone; unset keys: as for everybody.")

    @model_validator(mode="after")
    def _selects(self) -> Self:
        _check_texts("users", self.users, _USERS_ALLOWED)
        _check_texts("client_id_prefixes", self.client_id_prefixes, _CLIENTS_ALLOWED)
        _check_topics("topic_prefixes", self.topic_prefixes)
        return self

    @property
    def selects(self) -> bool:
        """Whether anything is in the zone by what it says itself; a listener may say so too."""
        return bool(self.listeners or self.users or self.client_id_prefixes or self.topic_prefixes)
