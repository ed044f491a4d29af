"""`holdfast storage losses`: which sessions have lost messages, by the rows that they keep of it (docs/retention.md)."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from cli.storage import Json, when
from cli.stores import ConfigFile, DataDir, Sets, find_stores, open_stores
from shards.rows import NOT_COUNTED, LossRow
from shards.survey import Survey

REASONS = {
    "period": "its time was over",
    "lease": "its time was over, and a lease that wanted it was passed over",
    "damaged": "it cannot be read",
    "by hand": "somebody dropped it",
    "store lost": "the store of its shard was lost",
    "restored": "it came after the backup that was restored",
    "leadership forced": "it was in sync only where no site came back",
    "read": "all had read it",
    "unlike": "the store gave other messages than before",
    "": "it is not remembered why",
}
"""In words; those of shards.dropped.Dropped and shards.rows.LossRow."""


def losses(
    client: Annotated[str | None, typer.Option("--client", metavar="ID", help="Of this client only.")] = None,
    data_dir: DataDir = None, config: ConfigFile = None, set_: Sets = None, as_json: Json = False,
) -> None:  # fmt: skip
    """Who has lost messages: sessions that came too late for what was dropped."""
    with open_stores(find_stores(data_dir, config, set_)) as stores:
        rows = [
            _facts(owner, loss, stores[loss.shard].survey)
            for store in stores
            for owner, loss in store.survey.losses(client.encode() if client is not None else None)
        ]  # fmt: skip
    rows.sort(key=lambda row: (row["client"], row["at"]))
    if as_json:
        print(json.dumps(rows))
        return
    for row in rows:
        print(_line(row))
    if not rows:
        print("nobody has lost anything" if client is None else f"{client} has lost nothing")


def _facts(client: bytes, loss: LossRow, survey: Survey) -> dict[str, Any]:
    """survey: of the shard in which the messages were.  What the clock on the wall showed at the time of the loss is taken from now."""
    wall = survey.wall
    return {
        "client": client.decode(errors="replace"), "filter": loss.filter.decode(errors="replace"), "shard": loss.shard,
        "generation": loss.generation, "class": loss.klass, "after": loss.after, "upto": loss.upto,
        "messages": None if loss.lost == NOT_COUNTED else loss.lost,
        "from": when(wall.wall_ms(loss.after, loss.from_wall_ms)) if loss.from_wall_ms else None,
        "to": when(wall.wall_ms(loss.upto, loss.to_wall_ms)) if loss.to_wall_ms else None,
        "at": when(wall.wall_ms(survey.position, loss.at_wall_ms)), "reason": loss.reason, "more": loss.more,
    }  # fmt: skip


def _line(row: dict[str, Any]) -> str:
    count = row["messages"]
    what = "what there was" if count is None else f"{count} message{'s' * (count != 1)}"
    times = f", published from {row['from']} to {row['to']}" if row["from"] and row["to"] else ""
    where = f"generation {row['generation']}" if row["generation"] else "generations not remembered singly"
    kind = f" of class {row['class']}" if row["class"] else ""
    more = f"; {row['more']} later loss{'es' * (row['more'] > 1)} included" if row["more"] else ""
    return (
        f"{row['at']} {row['client']} lost {what} of {row['filter']}{times} (shard {row['shard']}, {where}{kind}, positions "
        f"{row['after'] + 1} to {row['upto']}): {REASONS.get(row['reason'], row['reason'])}{more}"
    )
