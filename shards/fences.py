"""Which session actors may still add routes here: none that was replaced at the home of its sessions.

The id of a subscription says the home and the owner token under which it was made, and only who made it adds its route.  An
owner that removes what an older one had begun says its own token with it; from that record on, an addition under an older
token is not written, however late it comes (PROTOCOLS 6).  It is answered all the same: the home refuses whatever follows.

Holds: the token of a home only grows, and is on disk with the removal that brought it.
"""

from __future__ import annotations

from shards.draft import Draft
from shards.engine import HOME_FAMILY, Engine
from shards.ids import home_of_sub, token_of_sub
from shards.rows import META, pack_row, successor, unpack_row

_FENCE = META + b"fence"


class RouteFences:
    def __init__(self, engine: Engine) -> None:
        rows = engine.scan(HOME_FAMILY, _FENCE, successor(_FENCE), 256)
        self._tokens: dict[int, int] = {key[-1]: unpack_row(value)[0] for key, value in rows}

    def raise_to(self, draft: Draft, home: int, token: int) -> None:
        """Owners of this home with a smaller token were replaced."""
        if token > self._tokens.get(home, 0):
            self._tokens[home] = token
            draft.put(_FENCE + bytes((home,)), pack_row((token,)))

    def is_newest(self, home: int, token: int) -> bool:
        """Whether no newer owner of this home has been heard of."""
        return token >= self._tokens.get(home, 0)

    def admits(self, sub_id: int, token: int = 0) -> bool:
        """Whether who made this subscription may still be the owner of its home.  token: his, where the id does not say it."""
        return (token or token_of_sub(sub_id)) >= self._tokens.get(home_of_sub(sub_id), 0)
