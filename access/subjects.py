"""Whom a rule is about: users, groups, client ids, listeners, networks, and in which way somebody came in.

All that a subject gives have to fit, one value of each is enough.  Where listener or address are not known (a will that is due has no
connection), and where an address is none of the internet's, nobody can say whether they fit: such doubt goes against the one who asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from access.identity import Identity

Network = IPv4Network | IPv6Network
WAYS_IN: Final = ("anonymous", "password", "scram", "jwt", "certificate", "plugin", "pipeline")
_MAPPED: Final = IPv6Network("::ffff:0:0/96")


class SubjectError(ValueError):
    """What was found and what was wanted, as the rest of a sentence."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and from where.  listener "" and address None: not known."""

    who: Identity
    client: str
    listener: str
    address: IPv4Address | IPv6Address | None


def caller(who: Identity, client: bytes, listener: str, address: str) -> Caller:
    return Caller(who, client.decode(errors="surrogateescape"), listener, _address(address))


@dataclass(frozen=True, slots=True)
class Names:
    """Some are whole, of others the beginning is given."""

    whole: frozenset[str]
    beginnings: tuple[str, ...] = ()

    def fit(self, name: str) -> bool:
        return name in self.whole or name.startswith(self.beginnings)


@dataclass(frozen=True, slots=True)
class Subject:
    """None: not given, so it is about everybody, the anonymous one too."""

    users: Names | None = None
    groups: Names | None = None
    client_ids: Names | None = None
    listeners: frozenset[str] | None = None
    networks: tuple[Network, ...] | None = None
    how: frozenset[str] | None = None

    def fits(self, caller: Caller, doubt: bool) -> bool:
        """doubt: the answer where nobody can say."""
        who = caller.who
        if self.users is not None and not self.users.fit(who.user):
            return False
        if self.client_ids is not None and not self.client_ids.fit(caller.client):
            return False
        if self.groups is not None and not any(self.groups.fit(group) for group in who.groups):
            return False
        if self.how is not None and who.how not in self.how:
            return False
        if self.listeners is not None and not (caller.listener in self.listeners if caller.listener else doubt):
            return False
        if self.networks is None:
            return True
        address = caller.address
        return doubt if address is None else any(address in network for network in self.networks)


EVERYBODY = Subject()


class Register:
    """Finds subjects that may fit, of many that are each about few: by the names that they give whole.

    Gives each subject that fits, in order; of others not all.
    """

    def __init__(self, subjects: Sequence[Subject]) -> None:
        self._others: list[int] = []
        self._named: dict[tuple[str, str], list[int]] = {}
        for position, subject in enumerate(subjects):
            keys = _keys(subject)
            for key in keys:
                self._named.setdefault(key, []).append(position)
            if not keys:
                self._others.append(position)

    @property
    def others(self) -> int:
        """How many of them are looked at for everybody."""
        return len(self._others)

    def of(self, caller: Caller) -> list[int]:
        """The positions of those that may fit."""
        keys = [("user", caller.who.user), ("client", caller.client), *[("group", group) for group in caller.who.groups]]
        found = [position for key in keys for position in self._named.get(key, ())]
        return sorted({*self._others, *found}) if found else self._others


def parse_name(text: str) -> str:
    """A name, or the beginning of names and `*`."""
    if text in ("", "*"):
        # Whether the anonymous one with his empty name is meant would be anybody's guess.
        raise SubjectError("a name or the beginning of one and * is wanted; without this key everybody is meant")
    if "*" in text[:-1]:
        raise SubjectError("a * stands at the end only")
    return text


def names_of(names: Iterable[str]) -> Names:
    """Of what `parse_name` let through."""
    given = list(names)
    beginnings = tuple([name[:-1] for name in given if name.endswith("*")])
    return Names(frozenset([name for name in given if not name.endswith("*")]), beginnings)


def parse_listener(text: str) -> str:
    if not text:
        raise SubjectError("the name of a listener is wanted")
    return text


def parse_how(text: str) -> str:
    if text not in WAYS_IN:
        raise SubjectError(f"nobody comes in that way, known are {', '.join(WAYS_IN)}")
    return text


def parse_network(text: str) -> Network:
    if "%" in text:
        raise SubjectError("the name of an interface has no meaning here, such as fe80::/10 is wanted")
    try:
        found = ip_network(text, strict=False)
    except ValueError:
        raise SubjectError("no network, such as 10.0.0.0/8 or fd00::/8 is wanted") from None
    if isinstance(found, IPv6Network) and found.subnet_of(_MAPPED):
        raise SubjectError("IPv4 in words of IPv6, such as 10.0.0.0/8 is wanted")
    if ip_address(text.partition("/")[0]) != found.network_address:
        raise SubjectError(f"an address within a network, wanted is {found}")
    return found


def _keys(subject: Subject) -> list[tuple[str, str]]:
    """Under which it is found; none: it is looked at for everybody."""
    for kind, names in (("user", subject.users), ("client", subject.client_ids), ("group", subject.groups)):
        if names is not None and not names.beginnings:
            return [(kind, name) for name in names.whole]
    return []


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(text)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return mapped or found
