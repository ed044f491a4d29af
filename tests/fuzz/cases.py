"""Case after case of bytes that a client might send, each made from its number alone: to see one again, its number is enough.

version   3.1.1 or 5              when    before login, or behind a good CONNECT and some good packets
damage    one field wrong, raw    pieces  whole, every byte by itself (short ones), cut at random places
way       TCP, WebSocket; of those some with wrong frames too
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from random import Random

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from mqtt.encode import encode
from mqtt.packets import Connect, Item, Properties
from tests.fuzz.frames import framed
from tests.fuzz.mutate import raw, wrong_field
from tests.mqtt.generated import connects, items

CORPUS = 120
"""Good packets of each version and kind, from which the bad ones are made."""
EVERY_BYTE_MAX = 96
"""A longer one is cut at random places instead of at every byte."""
LANES = 32
"""Cases of one lane follow each other, those of different lanes may run at once: no client of one is a client of another."""
CLIENTS = 4
"""Names of each lane: few, so that clients come back and take over from themselves.  A case with spoiled frames has another one: nobody
waits for what becomes of it, so it may reach the broker behind the next of its lane, and would take its client from that."""
VERSIONS = (4, 5)


@dataclass(frozen=True, slots=True)
class Case:
    """What one connection sends.  login: how many bytes of it are a good CONNECT; 0: the first packet is a bad one.  wire: of MQTT.
    pieces: as they go over the socket.  web: in frames of a WebSocket.  spoiled: these are wrong, so who knows what arrives."""

    number: int
    version: int
    login: int
    wire: bytes
    pieces: tuple[bytes, ...]
    web: bool = False
    spoiled: bool = False

    def __str__(self) -> str:
        when = "after" if self.login else "before"
        way = ", spoiled frames" if self.spoiled else ", WebSocket" if self.web else ""
        return f"case {self.number} (MQTT {self.version}, {when} login{way}, {len(self.pieces)} pieces): {self.wire!r}"


def case(number: int) -> Case:
    rng = Random(number)
    version = rng.choice(VERSIONS)
    web = rng.random() < 0.3
    spoiled = web and rng.random() < 0.3
    good = _corpus(version)
    login = _login(version, f"{'spoiled' if spoiled else 'fuzz'}{number % LANES}", rng) if rng.random() < 0.7 else b""
    wire = login
    if login:
        for _ in range(rng.choice((0, 0, 1, 2))):
            wire += rng.choice(good.packets)
    victims = good.packets if login or rng.random() < 0.1 else good.connects
    wire += _damaged(rng.choice(victims), version, good, rng)
    if rng.random() < 0.3:
        wire += rng.choice(good.packets)
    if not web:
        return Case(number, version, len(login), wire, _cut(wire, rng))
    sent = framed(wire, rng)
    if spoiled:
        sent = raw(sent, sent, rng)
    return Case(number, version, 0 if spoiled else len(login), wire, _cut(sent, rng), True, spoiled)


def _damaged(packet: bytes, version: int, good: _Corpus, rng: Random) -> bytes:
    if rng.random() < 0.6:
        return wrong_field(packet, version, rng)
    return raw(packet, rng.choice(good.packets), rng)


def _login(version: int, names: str, rng: Random) -> bytes:
    """A CONNECT that is accepted."""
    clean = rng.random() < 0.7
    expiry_s = rng.choice((None, 0, 1, 60)) if version == 5 else None
    given = Properties(session_expiry_interval=expiry_s, receive_maximum=rng.choice((None, 1, 9)) if version == 5 else None)
    return encode(version, Connect(version, f"{names}-{rng.randrange(CLIENTS)}", clean, 60, properties=given))


def _cut(wire: bytes, rng: Random) -> tuple[bytes, ...]:
    how = rng.randrange(3)
    if how == 0 or len(wire) < 2:
        return (wire,)
    if how == 1 and len(wire) <= EVERY_BYTE_MAX:
        return tuple([wire[at : at + 1] for at in range(len(wire))])
    places = sorted({rng.randrange(1, len(wire)) for _ in range(rng.randrange(1, 6))})
    return tuple([wire[start:end] for start, end in zip([0, *places], [*places, len(wire)], strict=True)])


def prepare() -> None:
    """Draw what is drawn once; it takes some seconds."""
    for version in VERSIONS:
        _corpus(version)


@dataclass(frozen=True, slots=True)
class _Corpus:
    connects: list[bytes]
    packets: list[bytes]


@cache
def _corpus(version: int) -> _Corpus:
    return _Corpus(_drawn(version, connects(version)), _drawn(version, items(version, "server")))


def _drawn(version: int, strategy: st.SearchStrategy[Item] | st.SearchStrategy[Connect]) -> list[bytes]:
    """The same packets each time."""
    found: dict[bytes, None] = {}

    @settings(
        max_examples=CORPUS,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def draw(packet: Item) -> None:
        found[encode(version, packet)] = None

    draw()
    return list(found)
