"""Bridges: what is stored and carried elsewhere (docs/bridge.md).

Only declares and checks one bridge by itself; names and how many there may be by `config.load`.
"""

from __future__ import annotations

import re
from typing import Final, Literal, Self

from pydantic import model_validator

from config.bridge_kinds import Http, Mqtt, Parquet, Postgresql
from config.bridge_targets import Jsonl, Plugin
from config.fields import Flag, Section, Whole, conflict, setting
from config.values import INFINITY, Count, Duration, Size

BRIDGES_MAX: Final = 64
START_ALLOWED: Final = '"latest", "earliest", how long ago as "-2h", or a time such as "2026-11-20T10:00:00Z"'
_START = re.compile(r"latest|earliest|-\d{1,12}(ms|s|m|h|d)|\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)")
_FILTER_ALLOWED = 'a topic filter without $share, such as "plant/#"'
_TEMPLATE = 'text with JMESPath in braces, such as "site/{levels[1]}/{publisher}"'
_PIECE = re.compile(r"(?P<text>(?:[^{}]|\{\{|\}\})+)|\{(?P<expression>[^{}]+)\}")
_EXPRESSION = "a JMESPath expression, or nothing"


class Transform(Section):
    where: str = setting(
        "",
        "JMESPath over the message; a message for which it is false, null or empty is left out, and counts as delivered. Empty: all are "
        "carried.",
        allowed=_EXPRESSION,
        effect="at once",
    )
    payload: str = setting(
        "",
        "JMESPath over the message, whose result is the payload: a string as it is, anything else as JSON. Empty: the payload stays.",
        allowed=_EXPRESSION,
        effect="at once",
    )
    topic: str = setting("", "The topic under which it is carried. Empty: its own.", allowed=f"{_TEMPLATE}, or nothing", effect="at once")
    key: str = setting(
        "",
        "Its key: what keeps its order with `parallel_by` key, and the key of targets that have one. Empty: its topic.",
        allowed=f"{_TEMPLATE}, or nothing",
        effect="at once",
    )

    @model_validator(mode="after")
    def _expressions(self) -> Self:
        for key, expressions in (
            ("where", [self.where] if self.where else []),
            ("payload", [self.payload] if self.payload else []),
            ("topic", expressions_in(self.topic)),
            ("key", expressions_in(self.key)),
        ):
            if expressions is None or not all(_compiles(each) for each in expressions):
                raise conflict(key, _EXPRESSION if key in ("where", "payload") else f"{_TEMPLATE}, or nothing")
        return self


def expressions_in(template: str) -> list[str] | None:
    """What stands in braces; None where they do not fit.  `{{` and `}}` are braces themselves."""
    parts = pieces_of(template)
    return None if parts is None else [text for text, is_expression in parts if is_expression]


def pieces_of(template: str) -> list[tuple[str, bool]] | None:
    """(text, whether it is an expression) in their order."""
    found: list[tuple[str, bool]] = []
    rest = template
    while rest:
        piece = _PIECE.match(rest)
        if piece is None:
            return None
        rest = rest[piece.end() :]
        if piece["expression"] is not None:
            found.append((piece["expression"], True))
        else:
            found.append((piece["text"].replace("{{", "{").replace("}}", "}"), False))
    return found


def _compiles(expression: str) -> bool:
    # Loaded for whoever has such a setting, and for nobody else.
    import jmespath
    from jmespath.exceptions import JMESPathError

    try:
        jmespath.compile(expression)
    except JMESPathError:
        return False
    return True


class Bridge(Section):
    type: Literal["jsonl", "parquet", "mqtt", "http", "postgresql", "plugin"] = setting(
        "jsonl", "What kind of target it is; the section of that name has its settings.", effect="at once"
    )
    direction: Literal["out", "in"] = setting(
        "out",
        "out: what is stored here is carried to the target. in: what another broker has is brought here, as its client with a durable "
        "session; only with type mqtt.",
        effect="at once",
    )
    paused: Flag = setting(
        False,
        "Deliver nothing, and keep everything until this is false again: what `holdfast bridge pause` sets. With direction in the other "
        "broker keeps it.",
        effect="at once",
    )
    filter: str = setting(
        "",
        "Which messages are carried: those that are stored and whose topic this matches. Changed, the bridge begins with the new filter "
        "where `start` says. With direction in it is subscribed at the other broker.",
        allowed=_FILTER_ALLOWED,
        effect="at once",
    )
    start: str = setting(
        "latest",
        "Where it begins when it is made, which may be in the past (docs/replay.md); later it goes on where it was. For direction out.",
        allowed=START_ALLOWED,
        effect="at once",
    )
    inflight_max: Whole = setting(
        2000,
        "Messages that the bridge has in its memory: read, and not accepted by the target. Everything else waits in the store; with "
        "direction in, at the other broker, which is told this as the receive maximum.",
        unit="messages",
        ge=1,
        le=20_000,
        effect="at once",
    )
    inflight_bytes_max: Size = setting(
        Size.parse("32MiB"), "Bytes of them; at this point the bridge reads nothing more.", ge=2**20, le=2**30, effect="at once"
    )
    batch_count_max: Whole = setting(500, "Messages that go to the target together.", unit="messages", ge=1, le=20_000, effect="at once")
    batch_bytes_max: Size = setting(
        Size.parse("1MiB"), "Bytes of payloads and topics in one batch; one message may be more.", ge=1, le=256 * 2**20, effect="at once"
    )
    linger: Duration = setting(
        Duration.parse("20ms"), "How long a batch that is not full waits for more.", ge=0, le=60_000, effect="at once"
    )
    parallel: Whole = setting(
        1,
        "Connections to the target, over which messages are dealt by `parallel_by`. With one, everything is in the order of delivery.",
        unit="connections",
        ge=1,
        le=32,
        effect="at once",
    )
    parallel_by: Literal["topic", "publisher", "key"] = setting(
        "topic",
        "What keeps its order when there are several connections: messages with the same one of these take the same connection. With topic "
        "and publisher the order of each publisher and topic stays.",
        effect="at once",
    )
    rate_max: Count = setting(Count(INFINITY), "Messages a second that are handed on.", unit="messages a second", ge=1, effect="at once")
    connect_timeout: Duration = setting(
        Duration.parse("10s"), "How long a connection to the target may take.", ge=100, le=600_000, effect="at once"
    )
    deliver_timeout: Duration = setting(
        Duration.parse("2m"),
        "How long the target may take to accept a batch, or with direction in this broker a message. Then the connection is closed, and it "
        "is sent again.",
        ge=100,
        le=3_600_000,
        effect="at once",
    )
    retry_min: Duration = setting(
        Duration.parse("500ms"),
        "How long it waits after the first failure of a target that is away; each further one in a row doubles it; a part is by chance.",
        ge=1,
        le=600_000,
        effect="at once",
    )
    retry_max: Duration = setting(Duration.parse("30s"), "The longest that it waits.", ge=1, le=3_600_000, effect="at once")
    breaker_after: Whole = setting(
        5,
        "After so many failures in a row the breaker is open: one connection alone tries, until it has delivered something.",
        unit="failures",
        ge=1,
        le=1_000,
        effect="at once",
    )
    dead_letter_topic: str = setting(
        "",
        "Where a message is published that the target refuses for good. Empty: `durable_sessions.dead_letter_topic`.",
        pattern=r"^([^+#$\x00][^+#\x00]{0,999})?$",
        allowed="a topic without +, # and $ at its beginning, or nothing",
        effect="at once",
    )
    transform: Transform = setting(Transform(), "What becomes of a message on its way.")
    jsonl: Jsonl = setting(Jsonl(), "For jsonl: a file on this machine, one JSON object a line.")
    parquet: Parquet = setting(Parquet(), "For parquet: files in a directory of this machine.")
    mqtt: Mqtt = setting(Mqtt(), "For mqtt: another broker.")
    http: Http = setting(Http(), "For http: a server that is sent requests.")
    postgresql: Postgresql = setting(Postgresql(), "For postgresql: a table of a database.")
    plugin: Plugin = setting(Plugin(), "For plugin: a target of your own.")

    @property
    def target(self) -> Section:
        """The section of its type."""
        found = getattr(self, self.type)
        assert isinstance(found, Section)
        return found

    @model_validator(mode="after")
    def _together(self) -> Self:
        if not _is_filter(self.filter):
            raise conflict("filter", _FILTER_ALLOWED)
        if not _START.fullmatch(self.start):
            raise conflict("start", START_ALLOWED)
        if self.retry_max < self.retry_min:
            raise conflict("retry_max", f"at least {self.retry_min}, which is retry_min")
        if self.direction == "in" and self.type != "mqtt":
            raise conflict("type", '"mqtt", while direction is "in"')
        if self.direction == "in" and self.parallel != 1:
            raise conflict("parallel", '1, while direction is "in"')
        if (wanting := self.target.wanting()) is not None:  # type: ignore[attr-defined]  # each section of a target has it
            raise conflict(f"{self.type}.{wanting[0]}", f'{wanting[1]}, while type is "{self.type}"')
        return self


def _is_filter(text: str) -> bool:
    levels = text.split("/")
    if not text or "\0" in text or len(text.encode(errors="replace")) > 65_535 or levels[0] in ("$share", "$queue"):
        return False
    sound = all(level in ("+", "#") or not set(level) & set("+#") for level in levels)
    return sound and "#" not in levels[:-1]
