"""The rules of one version: what they come to for each connection, and the two sets of them that need no file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol
from weakref import WeakValueDictionary

from access.grants import bound_grants
from access.identity import Grant, Identity
from access.later import LaterProfile
from access.placeholders import values_of
from access.profile import Fitting, Profile, RuledProfile, Shelf
from access.rights import Extent, Right
from access.rules_file import Rule
from access.subjects import EVERYBODY, Register, caller

LATER_FROM: Final = 64
"""So many rules that are looked at for everybody are looked at when he first asks: new rules bring all connections of a gateway at once."""


class Access(Protocol):
    """One version of the rules; never changed."""

    @property
    def weight(self) -> int:
        """How many rules are looked at for everybody: what the first question of a profile costs, at some microseconds each."""

    def profile(self, who: Identity, client: bytes, listener: str, address: str) -> Profile | None:
        """What this one may do on this connection.  None: there are no rules, everything that the protocol allows."""


class Ruled:
    """Rules as they were read.

    is_open: whoever has no grants may do everything.  claims: what tokens bring along counts.  decides: what is said nothing about is left
    to a plugin.  Listener and address may be "" where nobody knows them: then rules about them deny, and allow nothing.
    """

    def __init__(self, version: int, rules: Sequence[Rule], *, claims: bool, is_open: bool, decides: bool = False) -> None:
        self.version = version
        self._rules = rules
        self._decides = decides
        self._claims = claims
        self._open = is_open
        # Many rules are about everybody, and need not be asked whether they are.
        self._about_all = [rule.subject == EVERYBODY and rule.unless is None for rule in rules]
        self._register = Register([rule.subject for rule in rules])
        # Who asks a plugin has to know at once what is left to it.
        self._later = self._register.others >= LATER_FROM and not decides
        self._shelf = Shelf()
        self._fitting: WeakValueDictionary[tuple[int, ...], Fitting] = WeakValueDictionary()
        self._profiles: WeakValueDictionary[_Key, RuledProfile] = WeakValueDictionary()

    def profile(self, who: Identity, client: bytes, listener: str, address: str) -> Profile | None:
        # The claim of tokens may be named no more, while a connection that came in with one is still there.
        grants = who.grants if self._claims or who.how != "jwt" else ()
        # What the reader's tokens may do is what was written behind them, whether there are rules or not.
        if self._open and not grants and who.how != "pipeline":
            return None
        if self._later:
            return LaterProfile(lambda: self._found(who, grants, client, listener, address))
        return self._found(who, grants, client, listener, address)

    @property
    def weight(self) -> int:
        return self._register.others

    def _found(self, who: Identity, grants: tuple[Grant, ...], client: bytes, listener: str, address: str) -> RuledProfile:
        asks = caller(who, client, listener, address)
        about_all, rules = self._about_all, self._rules
        fitting = self._fitting_of(tuple([each for each in self._register.of(asks) if about_all[each] or rules[each].fits(asks)]))
        known = values_of(who, client) if fitting.names else {}
        values = {name: known[name] for name in fitting.names if name in known}
        # What the reader's tokens may do is never asked of a plugin: the reader has no way to it.
        leaves_some = self._decides and who.how != "pipeline"
        key = (fitting, tuple(values.items()), grants, leaves_some)
        found = self._profiles.get(key)
        if found is None:
            found = self._profiles[key] = RuledProfile(fitting, values, bound_grants(grants), self._shelf, leaves_some=leaves_some)
        return found

    def _fitting_of(self, positions: tuple[int, ...]) -> Fitting:
        found = self._fitting.get(positions)
        if found is None:
            found = self._fitting[positions] = Fitting([self._rules[position] for position in positions])
        return found


_Key = tuple[Fitting, tuple[tuple[str, bytes], ...], tuple[Grant, ...], bool]


def compile_access(version: int, rules: Sequence[Rule] | None, *, claims: bool, decides: bool) -> Ruled:
    """rules None: there is no file.  claims: tokens bring grants along.  decides: a plugin is asked where rules and grants say nothing.

    Where none of the three is there everybody may do everything; a file without rules allows nothing.
    """
    return Ruled(version, rules or (), claims=claims, is_open=rules is None and not claims and not decides, decides=decides)


class _Nothing:
    """Sets that stay empty, and no to everything."""

    def __init__(self) -> None:
        self.publishable: set[bytes] = set()
        self.readable: set[bytes] = set()

    def may(self, right: Right, topic: bytes) -> bool:
        return False

    def grant(self, right: Right, topic_filter: bytes) -> Extent:
        return Extent.NONE


class _Closed:
    weight = 0

    def profile(self, who: Identity, client: bytes, listener: str, address: str) -> Profile | None:
        return _Nothing()


OPEN: Final[Access] = compile_access(0, None, claims=False, decides=False)
"""No rules: whoever came in may do everything."""
CLOSED: Final[Access] = _Closed()
"""Rules are wanted and none are valid: nobody may do anything."""
