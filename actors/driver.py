"""The driver: the one process that belongs to Ray and to the launcher at once.

Starts Ray (or joins one), makes the controller, says which processes of Ray must live, and waits to be told to stop. It has the processes
of the others come up as well, and leaves them to the controller. Holds no state and repairs nothing: when something under it dies that it
cannot do without, the launcher ends it and starts another.
Of a Ray it started, the head and the raylet die with it, by the kernel (PR_SET_PDEATHSIG is Ray's own doing), and the launcher ends the
rest; of one that it joined, only our actors end. When the launcher dies under it, it stops everything in good order, with Ray's own way
to end what it has started.

    python -m actors.driver RUN_DIR TABLE LAUNCHER_PID
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import secrets
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from actors.environment import NO_USE
from actors.logs import open_log
from actors.processes import ProcessId, descendants, stat
from actors.topology import Topology, write_needed, write_whole

if TYPE_CHECKING:
    from actors.deploy import RayDeployment
    from actors.embedded import EmbeddedRay
    from actors.ports import Member

STOP_S = 28.0
ASK_AGAIN_S = 0.2
NEEDED = ("gcs_server", "raylet")
_PR_SET_PDEATHSIG = 1


def main() -> int:
    run_dir, table, launcher = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    _stop_when_dies(launcher)
    topology = _new_generation(Topology.from_json((run_dir / "topology.json").read_text(encoding="utf-8")))
    open_log(topology.log_dir / "driver.log", topology.log_level, as_json=topology.log_json, who="driver")
    try:
        _run(topology, table, launcher)
    except Exception as error:  # Whatever Ray could not do: the operator gets one sentence, the log the rest.
        structlog.get_logger().error("driver.failed", exc_info=True)
        write_whole(run_dir / "driver.error", f"{' '.join(str(error).split())[:300] or type(error).__name__}")
        return NO_USE if getattr(error, "final", False) else 1
    return 0


def _run(topology: Topology, table: str, launcher: int) -> None:
    # Ray is imported only here: it takes a third of a second, and until then there is nothing to stop in good order.
    import ray

    from actors import embedded

    own: embedded.EmbeddedRay | None = None
    if topology.ray.joined:
        from actors.joining import join

        joined = join(topology)
        url = joined.dashboard
        write_needed(topology.run_dir, joined.needed, url, joined.notices)
    else:
        own = embedded.EmbeddedRay(topology)
        url = own.dashboard_url
        write_needed(topology.run_dir, _children(NEEDED), url)
    (topology.run_dir / "driver.error").unlink(missing_ok=True)
    structlog.get_logger().info("ray.started", address=topology.ray.address, dashboard=url)
    asyncio.run(_serve(topology, table, own))
    if own is not None and os.getppid() == launcher:
        # What is left of a Ray of our own has nothing to lose, and the launcher ends it. Ray would take its leave of it for a second.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    ray.shutdown()


async def _serve(topology: Topology, table: str, own: EmbeddedRay | None) -> None:
    from actors.deploy import RayDeployment
    from actors.watch import Watch

    log = structlog.get_logger()
    stop = asyncio.Event()
    # After ray.init, which puts a handler of its own there.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    deployment = RayDeployment(topology, table)
    watch = Watch(deployment, (lambda: None) if own is None else own.start_dashboard)
    for member in topology.members():
        # The controller makes those that are not there; made here, their processes come up while its own does.
        deployment.create(*member)
    watching = asyncio.create_task(watch.run())
    await stop.wait()
    watching.cancel()
    log.info("driver.stopping")
    await stop_everyone(watch.controller, STOP_S)
    if own is None:
        _end_actors(topology, deployment)
    log.info("driver.stopped")


async def stop_everyone(controller: Member, within: float, pause: float = ASK_AGAIN_S) -> None:
    """In good order, also when the controller dies meanwhile: Ray makes it anew, and it finds those who are there."""
    from actors.ports import Gone, Unavailable

    log = structlog.get_logger()
    deadline = time.monotonic() + within
    while (left := deadline - time.monotonic()) > 0:
        try:
            await controller.stop(left)
            return
        except Gone as error:
            log.warning("controller.not_stopped", reason=str(error))
            return
        except Unavailable as error:
            log.warning("controller.unavailable", reason=str(error))
        await asyncio.sleep(min(pause, left))
    log.warning("controller.not_stopped", reason=f"no answer within {within} s")


def _new_generation(topology: Topology) -> Topology:
    """From here on only actors made by this driver are wanted, and their names are in nobody's way."""
    generation = secrets.token_hex(4)
    write_whole(topology.generation_path, generation)
    return replace(topology, generation=generation, ray=replace(topology.ray, namespace=f"{topology.ray.namespace}-{generation}"))


def _end_actors(topology: Topology, deployment: RayDeployment) -> None:
    """In a Ray that is not ours: end our actors, and nothing else."""
    for role, index in [("controller", 0), *topology.members(), ("reader", 0), ("plugin", 0), ("admin", 0), ("bridge", 0)]:
        member = deployment.find(role, index)
        if member is not None:
            member.end()


def _children(names: tuple[str, ...]) -> dict[str, ProcessId]:
    """Those of our own children that have these names; it is we who just started them."""
    found = {}
    for process in descendants(os.getpid()):
        about = stat(process.pid)
        if about is not None and about.parent == os.getpid() and about.name in names:
            found[about.name] = process
    return found


def _stop_when_dies(parent: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("the launcher is gone")


if __name__ == "__main__":
    sys.exit(main())
