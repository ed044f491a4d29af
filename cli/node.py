"""`holdfast node`: what is done to one site of several before it is stopped."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Annotated

import typer

from actors.asking import NotReached, running
from actors.topology import Topology
from cli.asked import DataDir, Json
from cli.paths import data_path
from cli.stores import refuse

PAUSE_S = 0.5

app = typer.Typer(add_completion=False, no_args_is_help=True, help="One site of several.")


@app.callback()
def node() -> None:
    """One site of several."""


@app.command()
def drain(
    data_dir: DataDir = "./data",
    as_json: Json = False,
    within: Annotated[float, typer.Option("--within", min=1, max=600, metavar="SECONDS", help="How long to wait.")] = 60,
) -> None:
    """Let other sites lead all shards that this one leads, before it is stopped."""
    try:
        topology = running(data_path(data_dir))
        if topology.sites is None:
            refuse("There is one site: nobody else could lead its shards. `holdfast down` stops it.")
        led = asyncio.run(_drained(topology, within))
    except NotReached as error:
        refuse(f"{error}.")
    if as_json:
        print(json.dumps({"led": led}))
    elif not led:
        print("This site leads no shard. Stop it now, with `holdfast down`: when others are drained or fail it leads again.")
    if led:
        shards = f"{led} shard{'s' * (led != 1)}"
        print(f"holdfast: this site still leads {shards}: `holdfast ds info --verbose` says who is in sync.", file=sys.stderr)
        raise typer.Exit(1)


async def _drained(topology: Topology, within_s: float) -> int:
    """How many shards this site leads in the end."""
    from actors.sites.asked import ask

    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while (led := int(await ask(topology, "drain"))) and loop.time() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(PAUSE_S)
    return led
