"""`holdfast chaos`: breaks a part of a running broker on purpose, and says whether anything that was acknowledged got lost.

Refused unless the broker was started with `chaos.enabled = true`.  What is broken is whole again after `--for`, whatever becomes of this
command (actors.chaos); the verdict comes from the loss oracle (chaos.oracle), which is here put together with it.

Exit codes: as everywhere (cli.main), and 3 when not everything could be judged, 4 when a promise was broken.  The JSON form is an
interface: `{broken: {kind, targets, for_ms, how, processes}, verdict}`, verdict as chaos.verdict.Verdict or null; fields are added, never
renamed.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import structlog
import typer

from actors.asking import NotReached, running
from actors.chaos.faults import Target
from actors.chaos.injecting import CannotInject, Injector, disks_of, may_be_broken, processes_of, sides_of
from actors.logs import open_log
from actors.topology import Topology, read_announcements
from chaos.addresses import Address, AddressUnknown, Login
from chaos.oracle import MESSAGES_MAX, PREFIX, CannotBegin, Oracle, Plan
from chaos.verdict import Verdict
from cli.paths import data_path
from cli.stores import refuse
from cli.typed import duration_ms
from mqtt.reason import ProtocolError
from mqtt.topics import check_topic_name

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Break a part of a running broker on purpose, and see what is lost.")

CALM_S = 2.0
"""How long all is well under the oracle, before and after."""
NOT_PROVEN = 3
BROKEN = 4
INTERRUPTED = 130
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}

_PROCESS = "shard, session, gateway, controller, reader, plugin, admin, one of them such as shard-0, or all."
Process = Annotated[str, typer.Argument(metavar="ROLE[-INDEX]", help=_PROCESS)]
Disk = Annotated[str, typer.Argument(metavar="ROLE[-INDEX]", help="shard, or one of them such as shard-0.")]
Side = Annotated[str, typer.Argument(metavar="ROLE[-INDEX]", help="shard, session, gateway, one of them such as gateway-0, or site-ID.")]
For = Annotated[str, typer.Option("--for", metavar="TIME", help="It is whole again after that, by itself.")]
Judged = Annotated[bool, typer.Option("--oracle/--no-oracle", help="Have the loss oracle publish and read meanwhile, and judge.")]
Connect = Annotated[
    list[str] | None,
    typer.Option("--connect", metavar="HOST:PORT", help="Where the oracle's clients go; several, and they move between them."),
]
Username = Annotated[str | None, typer.Option("--username", help="Of the oracle's clients.")]
PasswordFile = Annotated[Path | None, typer.Option("--password-file", metavar="FILE", help="Its first line is their password.")]
Trusted = Annotated[Path | None, typer.Option("--trusted", metavar="FILE", help="Certificates (PEM) that mqtts://HOST:PORT has to show.")]
Topic = Annotated[str, typer.Option("--topic", metavar="PREFIX", help="All topics of the oracle begin with it.")]
Rate = Annotated[float, typer.Option("--rate", min=0.1, max=1000, help="Messages a second of each of its four publishers.")]
Settle = Annotated[str, typer.Option("--settle", metavar="TIME", help="It gives up when nothing has come for so long.")]
Json = Annotated[bool, typer.Option("--json", help="JSON for scripts.")]
DataDir = Annotated[str, typer.Option("--data-dir", metavar="DIR", help="Of the broker that is meant.")]


@dataclass(frozen=True, slots=True)
class Asked:
    """What all commands take: how the oracle is to watch, of which broker, and for whom it is printed."""

    oracle: bool
    connect: list[str] | None
    username: str | None
    password_file: Path | None
    trusted: Path | None
    topic: str
    rate: float
    settle: str
    as_json: bool
    data_dir: str

    def plan(self, topology: Topology, for_s: float) -> Plan | None:
        """Ends the command when it makes no sense."""
        if not self.oracle:
            return None
        try:
            addresses = tuple([Address.parse(text) for text in self.connect or ()]) or _listening(topology)
            check_topic_name(self.topic)
        except AddressUnknown as error:
            refuse(f"{error}.", 2)
        except ProtocolError as error:
            refuse(f"{self.topic!r} cannot be the beginning of topics: {error}.", 2)
        if not addresses:
            refuse("the broker has no listener for plain TCP: say with --connect where the oracle goes, or --no-oracle.")
        try:
            password = self.password_file.read_bytes().partition(b"\n")[0].rstrip(b"\r") if self.password_file is not None else None
        except OSError as error:
            refuse(f"{self.password_file} cannot be read: {error.strerror}.")
        trusted = str(self.trusted) if self.trusted is not None else None
        login = Login(addresses, self.username, password, trusted)
        plan = Plan(login, for_s + 2 * CALM_S, prefix=self.topic, per_second=self.rate, settle_s=duration_ms(self.settle) / 1000)
        if plan.messages > MESSAGES_MAX:
            refuse(f"the oracle would send {plan.messages:,.0f} messages, and keeps account of {MESSAGES_MAX:,}: a lower --rate.", 2)
        return plan


def _listening(topology: Topology) -> tuple[Address, ...]:
    """Where all gateways of a broker listen for MQTT over plain TCP."""
    found = [listener for each in read_announcements(topology.run_dir) for listener in each.announcement.listeners]
    plain = [listener for listener in found if listener.kind == "tcp" and listener.plain]
    chosen = [listener for listener in plain if listener.shared] or plain
    return tuple(dict.fromkeys([Address(_ANYWHERE.get(each.host, each.host), each.port) for each in chosen]))


@app.command()
def kill(
    role: Process, for_: For = "60s", every: Annotated[str, typer.Option("--every", metavar="TIME", help="Between two of them.")] = "5s",
    oracle: Judged = True, connect: Connect = None, username: Username = None, password_file: PasswordFile = None, trusted: Trusted = None,
    topic: Topic = PREFIX, rate: Rate = 20.0, settle: Settle = "60s", as_json: Json = False, data_dir: DataDir = "./data",
) -> None:  # fmt: skip
    """SIGKILL one process of this role after the other, again and again; `all`: everything but the launcher, at once."""
    every_s = duration_ms(every) / 1000
    if every_s <= 0:
        refuse("--every is a time above 0.", 2)
    asked = Asked(oracle, connect, username, password_file, trusted, topic, rate, settle, as_json, data_dir)
    _break("kill", (role,), processes_of, for_, asked, lambda at: at.injector.kill(at.targets[0], at.for_s, every_s))


@app.command()
def pause(
    role: Process, for_: For = "5s",
    oracle: Judged = True, connect: Connect = None, username: Username = None, password_file: PasswordFile = None, trusted: Trusted = None,
    topic: Topic = PREFIX, rate: Rate = 20.0, settle: Settle = "60s", as_json: Json = False, data_dir: DataDir = "./data",
) -> None:  # fmt: skip
    """Stop processes (SIGSTOP) and continue them. A gateway that stands still for 3 s is killed by its watchdog, as always."""
    asked = Asked(oracle, connect, username, password_file, trusted, topic, rate, settle, as_json, data_dir)
    _break("pause", (role,), processes_of, for_, asked, lambda at: at.injector.pause(at.targets[0], at.for_s))


@app.command()
def partition(
    one: Side, other: Side, for_: For = "30s",
    one_way: Annotated[bool, typer.Option("--one-way", help="Only what the first sends is kept from the second.")] = False,
    oracle: Judged = True, connect: Connect = None, username: Username = None, password_file: PasswordFile = None, trusted: Trusted = None,
    topic: Topic = PREFIX, rate: Rate = 20.0, settle: Settle = "60s", as_json: Json = False, data_dir: DataDir = "./data",
) -> None:  # fmt: skip
    """Cut the links between two roles, and refuse new ones."""
    asked = Asked(oracle, connect, username, password_file, trusted, topic, rate, settle, as_json, data_dir)
    how = ", one way" if one_way else ""
    _break("partition", (one, other), sides_of, for_, asked, lambda at: at.injector.cut(at.targets, at.for_s, one_way=one_way), how)


@app.command("slow-disk")
def slow_disk(
    role: Disk, for_: For = "30s",
    delay: Annotated[str, typer.Option("--delay", metavar="TIME", help="What each sync takes more.")] = "200ms",
    oracle: Judged = True, connect: Connect = None, username: Username = None, password_file: PasswordFile = None, trusted: Trusted = None,
    topic: Topic = PREFIX, rate: Rate = 20.0, settle: Settle = "60s", as_json: Json = False, data_dir: DataDir = "./data",
) -> None:  # fmt: skip
    """Make each sync of the disk take longer."""
    delay_ms = duration_ms(delay)
    if not 0 < delay_ms <= 60_000:
        refuse("--delay is a time above 0, and up to 60s.", 2)
    asked = Asked(oracle, connect, username, password_file, trusted, topic, rate, settle, as_json, data_dir)
    _break("slow-disk", (role,), disks_of, for_, asked, lambda at: at.injector.slow(at.targets, at.for_s, delay_ms), f", {delay}")


@app.command("disk-full")
def disk_full(
    role: Disk, for_: For = "30s",
    oracle: Judged = True, connect: Connect = None, username: Username = None, password_file: PasswordFile = None, trusted: Trusted = None,
    topic: Topic = PREFIX, rate: Rate = 20.0, settle: Settle = "60s", as_json: Json = False, data_dir: DataDir = "./data",
) -> None:  # fmt: skip
    """Refuse every write for want of room."""
    asked = Asked(oracle, connect, username, password_file, trusted, topic, rate, settle, as_json, data_dir)
    _break("disk-full", (role,), disks_of, for_, asked, lambda at: at.injector.fill(at.targets, at.for_s))


# ---------------------------------------------------------------------------------------------------- what all of them do


@dataclass(frozen=True, slots=True)
class Breaking:
    injector: Injector
    targets: tuple[Target, ...]
    for_s: float


def _break(
    kind: str, texts: tuple[str, ...], choose: Callable[[Topology, Sequence[str]], tuple[Target, ...]], for_: str, asked: Asked,
    inject: Callable[[Breaking], Awaitable[list[str] | None]], how: str = "",
) -> None:  # fmt: skip
    """how: what is to be known of it beside its kind."""
    for_ms = duration_ms(for_)
    directory = data_path(asked.data_dir)
    try:
        topology = running(directory)
        may_be_broken(topology)
        targets = choose(topology, texts)
        at = Breaking(Injector(topology), targets, for_ms / 1000)
        at.injector.may_last(at.for_s)
    except (NotReached, CannotInject) as error:
        refuse(f"{error}.")
    plan = asked.plan(topology, at.for_s)
    open_log(directory / "logs" / "chaos.log", "info", as_json=topology.log_json, who="chaos")
    try:
        processes, verdict = asyncio.run(_whole(plan, lambda: inject(at), quiet=asked.as_json))
    except (CannotInject, CannotBegin) as error:
        refuse(f"{error}.")
    except asyncio.CancelledError:
        refuse("it was ended before there was a verdict; nothing is broken any more.", INTERRUPTED)
    if asked.as_json:
        broken = {"kind": kind, "targets": list(map(str, targets)), "for_ms": for_ms, "how": how.removeprefix(", "), "processes": processes}
        print(json.dumps({"broken": broken, "verdict": None if verdict is None else dataclasses.asdict(verdict)}))
    else:
        what = f"{kind} {' '.join(map(str, targets))}{how}, for {for_}"
        print(f"{what}: {', '.join(_counted(processes))}" if processes else what)
        print("\n".join(verdict.lines()) if verdict is not None else "nobody watched what was lost (--no-oracle)")
    if verdict is not None and not verdict.kept:
        raise typer.Exit(BROKEN)
    if verdict is not None and not verdict.complete:
        raise typer.Exit(NOT_PROVEN)


async def _whole(
    plan: Plan | None, inject: Callable[[], Awaitable[list[str] | None]], *, quiet: bool
) -> tuple[list[str], Verdict | None]:  # fmt: skip
    """The processes it was about, where it knows, and the verdict."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    if plan is None:
        return await inject() or [], None
    oracle = Oracle(plan)
    log = structlog.get_logger()
    verdict: Verdict | None = None
    try:
        await oracle.begin()
        if not quiet:
            print(f"the oracle {oracle.run} is at work below {plan.prefix}", file=sys.stderr)
        log.info("oracle.began", run=oracle.run, prefix=plan.prefix, addresses=[str(each) for each in plan.login.addresses])
        await asyncio.sleep(CALM_S)
        processes = await inject() or []
        await asyncio.sleep(CALM_S)
        verdict = await oracle.judge()
        log.info("oracle.judged", run=oracle.run, kept=verdict.kept, complete=verdict.complete, counts=dict(verdict.counts))
    finally:
        verdict = await oracle.clean_up(verdict)
    return processes, verdict


def _counted(names: list[str]) -> list[str]:
    counts = {name: names.count(name) for name in names}
    return [name if count == 1 else f"{name} {count} times" for name, count in counts.items()]
