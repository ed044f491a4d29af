"""Offsets: how far a reading has come, for each shard an exclusive cut in its positions (docs/reader.md).

The JSON is canonical, since Spark compares offsets as text. A lease's name goes along, so that whoever sees a completed batch knows whom to
acknowledge it for. So does the time at which it was made, where rows are left out that had expired by then: whoever runs the batch again
leaves out the same. An offset belongs to one store; one of another store is never read as a place in this one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from holdfast_spark.protocol import Code, Refused

VERSION: Final = 1
POSITION_MAX: Final = 2**63 - 1


class BadOffset(ValueError):
    """Not an offset of this source; the sentence says what was found."""


@dataclass(frozen=True, slots=True)
class Offset:
    store: str
    cuts: Mapping[int, int]
    lease: str | None = None
    at_ms: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """For Spark, which writes it down as JSON in this order."""
        found: dict[str, Any] = {} if self.at_ms is None else {"at": self.at_ms}
        found |= {} if self.lease is None else {"lease": self.lease}
        cuts = {str(shard): cut for shard, cut in self.cuts.items()}
        return found | {"s": {shard: cuts[shard] for shard in sorted(cuts)}, "store": self.store, "v": VERSION}

    def as_json(self) -> str:
        return json.dumps(self.as_dict(), separators=(",", ":"), sort_keys=True)

    def of_store(self, store: str) -> Offset:
        """Itself, or the data-loss error when it was made under another store id."""
        if self.store != store:
            raise Refused(
                Code.STORE,
                f"the offset was made by store {self.store}, and the reader serves {store}: what was not read of the former is lost to "
                "this query; begin anew with a new checkpoint",
                {"found": self.store, "wanted": store},
            )
        return self


def parse_offset(found: str | Mapping[str, Any]) -> Offset:
    """An offset from JSON, as Spark or a person writes it. BadOffset with one sentence."""
    wanted = '{"s":{"0":position},"store":"site:incarnation","v":1}'
    if isinstance(found, str):
        try:
            value = json.loads(found)
        except ValueError:
            raise BadOffset(f"{found[:80]!r} is not JSON; an offset looks like {wanted}") from None
    else:
        value = found
    if not isinstance(value, Mapping) or not value.keys() >= {"s", "store", "v"} or not value.keys() <= {"s", "store", "v", "lease", "at"}:
        raise BadOffset(f"{str(value)[:80]!r} is not an offset; one looks like {wanted}")
    if value["v"] != VERSION:
        raise BadOffset(f"an offset of version {value['v']!r}; this program reads version {VERSION}")
    store, lease, at_ms, cuts = value["store"], value.get("lease"), value.get("at"), value["s"]
    named = (lease is None or isinstance(lease, str)) and (at_ms is None or type(at_ms) is int)
    if not isinstance(store, str) or not isinstance(cuts, Mapping) or not named:
        raise BadOffset(f"{str(value)[:80]!r} is not an offset; one looks like {wanted}")
    by_shard: dict[int, int] = {}
    for shard, cut in cuts.items():
        ok = isinstance(shard, str) and shard.isascii() and shard.isdigit() and type(cut) is int and 0 <= cut <= POSITION_MAX
        if not ok:
            raise BadOffset(f"an offset has {str(cut)[:40]!r} for shard {str(shard)[:40]!r}; a position is a whole number")
        by_shard[int(shard)] = cut
    return Offset(store, by_shard, lease, at_ms)
