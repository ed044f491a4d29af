"""`holdfast up`: decides everything the configuration decides, then becomes the launcher or waits for one.

Leaves all starting to actors.launcher. In the foreground this process turns into it, so that there is no third one between the
operator's Ctrl-C and the broker; with --detach it starts one and waits until a client could connect.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from actors import ROOT
from actors.access.publishing import wants_access
from actors.access.secrets import packed
from actors.listening.contexts import look
from actors.origin import Origin
from actors.settings import door_options
from actors.spec import LaunchSpec
from actors.topology import SitesPlan
from actors.wire import WireError, check_certificates
from cli.paths import data_path
from config.dump import dump_json
from config.load import ConfigError, environment, load_with_sources, secrets
from config.schema import Config
from config.values import Bind
from shards.backends import BackendUnknown, check_backend

START_WITHIN_S = 60.0
STOP_MARGIN_S = 35.0
"""After a start that failed the launcher still has to end what it started."""
PRODUCT_TABLE = "actors.deploy:PRODUCT_TABLE"
NO_ORIGIN = Origin()

DataDir = Annotated[str | None, typer.Option("--data-dir", metavar="DIR", help="Where everything is stored. One broker at a time.")]


def up(
    data_dir: DataDir = None,
    port: Annotated[int | None, typer.Option("--port", metavar="PORT", help="MQTT port; 0 takes a free one.")] = None,
    config: Annotated[Path | None, typer.Option("--config", metavar="FILE", help="TOML file.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set one key. May be given often.")] = None,
    address: Annotated[str | None, typer.Option("--address", help="Join the Ray that runs there; auto: the one on this machine.")] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Return when a client can connect, and leave the broker running.")] = False,
    within: Annotated[
        float, typer.Option("--within", min=1, max=600, metavar="SECONDS", help="With --detach: how long to wait for that.")
    ] = START_WITHIN_S,
) -> None:
    """Start the broker, and keep it running until Ctrl-C or `holdfast down`.

    With --detach a broker that is not ready in time is ended; one of several sites is left running, as it may wait for the others."""
    sets = list(set_ or ())
    if address is not None:
        sets.append(f"ray.address={address}")
    try:
        given = load_with_sources(config, sets=sets, data_dir=data_dir, port=port)
        loaded = given.config
        opened = secrets(loaded)
    except ConfigError as error:
        for problem in error.problems:
            print(problem, file=sys.stderr)
        raise typer.Exit(1) from None
    for notice in given.notices:
        print(notice, file=sys.stderr)
    try:
        check_backend(loaded.durable_storage.messages.backend)
    except BackendUnknown as error:
        print(f"durable_storage.messages.backend: {error}.", file=sys.stderr)
        raise typer.Exit(1) from None
    if problems := wrong_files(loaded, opened):
        for problem in problems:
            print(f"{problem}.", file=sys.stderr)
        raise typer.Exit(1)
    file = os.path.abspath(config) if config is not None else ""
    origin = Origin(file, tuple(sets), data_dir, port, environment())
    spec = launch_spec(loaded, cores=usable_cores(), start_within=within if detach else None, origin=origin, opened=opened)
    if detach:
        raise typer.Exit(launch_detached(spec))
    become_launcher(spec)


def usable_cores() -> int:
    return len(os.sched_getaffinity(0))


def launch_spec(
    config: Config,
    *,
    cores: int,
    start_within: float | None,
    table: str = PRODUCT_TABLE,
    origin: Origin = NO_ORIGIN,
    opened: Mapping[str, bytes] | None = None,
) -> LaunchSpec:
    """What the launcher needs of a configuration, and of where it was read. opened: its secrets."""
    messages = config.durable_storage.messages
    return LaunchSpec(
        data_dir=str(data_path(config.data_dir)),
        store_dir=str(data_path(messages.data_dir)) if messages.data_dir else "",
        config_json=dump_json(config),
        binds=binds_of(config),
        n_shards=None if messages.n_shards == "auto" else messages.n_shards,
        n_shards_new=config.shard_count(cores),
        n_sessions=config.session_count(cores),
        n_gateways=config.gateway_count(cores),
        watchdog_after=config.gateway.watchdog_after.seconds if config.gateway.watchdog else None,
        ray_address=config.ray.address,
        ray_namespace=config.ray.namespace,
        ray_temp_dir=config.ray.temp_dir,
        dashboard=config.ray.dashboard and config.ray.address == "local",
        dashboard_port=config.ray.dashboard_port,
        object_store_bytes=int(config.ray.object_store_bytes),
        reserve_bytes=int(config.storage_reserve),
        admin=(config.admin.listen.host, config.admin.listen.port) if config.admin.enable else None,
        log_level=config.log.level,
        log_json=config.log.format == "json",
        access=wants_access(config),
        secrets=packed(opened or {}),
        table=table,
        start_within=start_within,
        chaos=config.chaos.enabled,
        origin=origin,
        sites=sites_plan(config),
        sites_secret=config.cluster.secret,
        compact=config.is_compact(cores),
    )


def sites_plan(config: Config) -> SitesPlan | None:
    """None: one site."""
    messages, cluster = config.durable_storage.messages, config.cluster
    if messages.n_sites == 1 or not isinstance(cluster.listen, Bind):
        return None
    tls = cluster.tls
    return SitesPlan(messages.n_sites, messages.copies, cluster.listen.host, cluster.listen.port, tls.ca, tls.cert, tls.key)


def binds_of(config: Config) -> dict[str, tuple[str, int]]:
    return {each.name: (each.host, each.port) for each in door_options(config) if each.kind != "unix"}


def wrong_files(config: Config, opened: Mapping[str, bytes]) -> list[str]:
    """What is wrong with the certificates of listeners and of links between sites, a sentence each; no process would start with them.
    opened: the secrets."""
    wanted = {each.name: each.tls for each in door_options(config) if each.tls}
    problems = [made.cause for made in look(wanted, {}, opened).values() if made.cause]
    try:
        check_certificates(sites_plan(config))
    except WireError as error:
        problems.append(str(error))
    return problems


def _command(spec: LaunchSpec, report_fd: int) -> tuple[list[str], int]:
    """The launcher's command line, and the descriptor it reads the specification from."""
    spec_fd = os.memfd_create("holdfast-spec", 0)
    os.write(spec_fd, spec.to_json().encode())
    os.lseek(spec_fd, 0, os.SEEK_SET)
    # -P: the directory we were called in is not a place to import from.
    return [sys.executable, "-P", "-m", "actors.launcher", str(spec_fd), str(report_fd)], spec_fd


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}


def become_launcher(spec: LaunchSpec) -> NoReturn:
    """Replace this process, so that the terminal's Ctrl-C reaches the launcher and nothing else."""
    command, spec_fd = _command(spec, 1)
    os.set_inheritable(spec_fd, True)
    sys.stdout.flush()
    os.execve(command[0], command, _environment())


def launch_detached(spec: LaunchSpec) -> int:
    """Start a launcher and wait for its report; the exit code of `up --detach`."""
    reader, writer = os.pipe()
    command, spec_fd = _command(spec, writer)
    launcher = subprocess.Popen(
        command,
        env=_environment(),
        pass_fds=(spec_fd, writer),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(spec_fd)
    os.close(writer)
    with open(reader, encoding="utf-8") as file:
        try:
            line = file.readline()
        except KeyboardInterrupt:
            launcher.terminate()
            launcher.wait(STOP_MARGIN_S)
            raise
    if not line:
        status = launcher.wait(STOP_MARGIN_S)
        print(f"Holdfast did not start: the launcher ended with {status}; see {spec.data_dir}/logs/launcher.log.", file=sys.stderr)
        return 1
    report = json.loads(line)
    if not report["ok"]:
        launcher.wait(STOP_MARGIN_S)
        print(report["text"], file=sys.stderr)
        return 1
    print(report["text"])
    return 0
