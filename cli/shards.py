"""`holdfast shards`: where things lie."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from cli.asked import DataDir, Json
from cli.paths import data_path
from cli.stores import site_of
from shards.slots import SlotTable, slot_of

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Where things lie.")


@app.callback()
def shards() -> None:
    """Where things lie."""


@app.command()
def of(
    client: Annotated[str, typer.Argument(metavar="CLIENT", help="A client id.")],
    data_dir: DataDir = "./data", as_json: Json = False,
) -> None:  # fmt: skip
    """The home of a client: where its session is, and everything that it publishes. The broker need not run."""
    site = site_of(data_path(data_dir))
    slot = slot_of(client.encode())
    shard = SlotTable.initial(site.n_shards).shard_of(client.encode())
    if as_json:
        print(json.dumps({"client": client, "slot": slot, "shard": shard, "shards": site.n_shards}))
    else:
        print(f"{client} is at home in shard {shard} of {site.n_shards} (slot {slot} of 256)")
