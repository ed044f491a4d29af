"""The product's own actors, in processes that write down every call they make of Ray.

Run as a program this is `holdfast`, with these actors in the place of the product's. Every process that loads this module, and with
it the driver and the controller, appends a line to `ray-calls.PID` in the data directory for each call, before it is made. What is
counted are the entrances of Ray's Python interface: calling and making actors and tasks, getting, putting, waiting, looking up,
ending. Ray's compiled parts have no other users in our code; tests/house says who may name them.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
import ray.actor
import ray.remote_function
from ray._private import worker

from actors.deploy import HoldfastGateway, HoldfastSession, HoldfastShard, Table
from actors.processes import DATA_MARK

METHODS = (
    (ray.actor.ActorHandle, "_actor_method_call"),
    (ray.actor.ActorClass, "_remote"),
    (ray.remote_function.RemoteFunction, "_remote"),
)
FUNCTIONS = ("get", "put", "wait", "get_actor", "kill", "cancel")


def calls_file(data_dir: Path, pid: int) -> Path:
    return data_dir / f"ray-calls.{pid}"


def _counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def counting(*arguments: Any, **options: Any) -> Any:
        with calls_file(Path(os.environ[DATA_MARK]), os.getpid()).open("a") as file:
            file.write(f"{name}\n")
        return call(*arguments, **options)

    return counting


def count_calls() -> None:
    for owner, name in METHODS:
        setattr(owner, name, _counted(f"{owner.__name__}.{name}", getattr(owner, name)))
    for name in FUNCTIONS:
        counted = _counted(f"ray.{name}", getattr(ray, name))
        setattr(ray, name, counted)
        setattr(worker, name, counted)


class CountedShard(HoldfastShard):
    """A shard whose process has loaded this module."""


class CountedSession(HoldfastSession):
    """A session actor whose process has loaded this module."""


class CountedGateway(HoldfastGateway):
    """A gateway whose process has loaded this module."""


def main() -> None:
    from cli import main as holdfast
    from cli import up

    up.launch_spec = functools.partial(up.launch_spec, table="tests.cluster.counting:TABLE")
    holdfast.main()


if __name__ == "__main__":
    main()

if DATA_MARK in os.environ:
    count_calls()
TABLE = Table(shard=ray.remote(CountedShard), session=ray.remote(CountedSession), gateway=ray.remote(CountedGateway))
