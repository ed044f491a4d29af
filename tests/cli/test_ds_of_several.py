"""`holdfast ds`, `node` and `status` of a broker that is one of several sites, whose site processes run beside the command."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from typer.testing import CliRunner, Result

from actors.datadir import Site, write_site
from actors.processes import identify
from actors.release import release
from actors.replica.draining import is_drained
from actors.run import Run, boot_id, record_run
from actors.topology import Topology, write_whole
from cli.main import app
from shards.replication.configuration import taken_over
from tests.actors.sites.several import changed, made, register_of, rid, running, says, site_id, told, topologies, until

pytestmark = pytest.mark.slow
A, B, C = [site_id(number) for number in (1, 2, 3)]


def _recorded(topology: Topology) -> None:
    launcher = identify(os.getpid())
    assert launcher is not None
    write_whole(topology.run_dir / "topology.json", topology.to_json())
    record_run(topology.data_dir, Run(topology.run_dir, launcher, boot_id(), False))
    write_site(topology.data_dir, Site(2, topology.site, 1, topology.n_shards, "2026-01-01T00:00:00Z", n_sites=3, replication_factor=3))


@pytest.fixture
def three(tmp_path: Path) -> Iterator[list[Topology]]:
    """Three sites with two shards; site A leads the first one, and nobody the second; C is behind."""
    ready, over = threading.Event(), threading.Event()

    async def serve(sites: list[Topology]) -> None:
        async with running(*sites) as servers:
            for topology in sites:
                await made(topology, 2)
            await until(lambda: all(len(each._seen.shards) == 2 and len(each.up()) == 3 for each in servers))
            async with register_of(sites[0]) as register:
                await changed(register, 0, lambda now: taken_over(now, rid(1), "n"))
            says(sites[0], 0, role="leader", epoch=1, leader=rid(1), behind={rid(2): 0, rid(3): 1234})
            await until(lambda: all(told(topology).leads for topology in sites))
            await until(lambda: bool(servers[0]._copies))
            ready.set()
            await asyncio.to_thread(over.wait)

    # What the site processes log would be among what the commands say.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with topologies(tmp_path, 3) as sites:
        for topology in sites:
            _recorded(topology)
        thread = threading.Thread(target=lambda: asyncio.run(serve(sites)))
        thread.start()
        try:
            assert ready.wait(60)
            yield sites
        finally:
            over.set()
            thread.join()
            structlog.reset_defaults()


def said(topology: Topology, *words: str) -> Result:
    return CliRunner().invoke(app, [*words, "--data-dir", str(topology.data_dir)])


def test_operators_see_and_move_replicas(three: list[Topology]) -> None:
    """From any site; with the words of the design for what cannot be."""
    info = ""
    while f"{C} 1,234" not in info:
        # What a leader says of its followers comes with its next look at them.
        info = said(three[0], "ds", "info", "--verbose").stdout
    assert f"THIS SITE:\n{A}\n" in info and f"{C}    'holdfast@" in info and "    up\n" in info
    assert f"messages/1                        {A}      {B}      {C}" in info
    assert "REPLICATION (register: in a file of one site of 3, a single point" in info
    assert "nobody yet" in info and "REPLICA TRANSITIONS" not in info
    assert "RELEASES (format 1 of the cluster is in use):\n" in info
    assert [line.split()[2:] for line in info.splitlines() if line.startswith((f"{A}  {release()}", f"{B}  {release()}"))] == [
        ["1", "this", "site"], ["1", "version", "1"],
    ]  # fmt: skip
    assert said(three[1], "ds", "leave", "messages", C).stdout == "ok\n"
    assert said(three[2], "ds", "leave", "all", C).stdout == "unchanged\n"
    moving = ""
    while f"-{C}" not in moving:
        moving = said(three[2], "ds", "info").stdout
    assert f"REPLICA TRANSITIONS:\nShard                             Transitions\nmessages/0                        -{C}" in moving
    assert said(three[0], "ds", "join", "messages", C).stdout == "ok\n"
    for words, sentence in (
        (("join", "messages", "FF"), "Unable to update replicas: Unknown sites: FF"),
        (("set-replicas", "messages", "FF", A), "Unable to update replicas: Unknown sites: FF"),
        (("join", "x", A), "Unknown durable storage"),
        (("lost", B), "Unable to declare the site lost: Site is still up"),
        (("forget", B), "Unable to forget site: Site is still up"),
    ):
        result = said(three[0], "ds", *words)
        assert (result.exit_code, result.stderr.strip()) == (1, sentence)
    found = json.loads(said(three[0], "ds", "info", "--json").stdout)
    assert found["shards"][0]["leader"] == A and found["shards"][0]["in_sync"] == [A, B, C] and found["shards"][0]["behind"][C] == 1234


def test_status_says_how_sites_stand(three: list[Topology]) -> None:
    """Who is there, who leads how much, and what hangs on the register."""
    text = said(three[1], "status").stdout
    assert "a single point: while it is away, no shard gets another leader" in text
    assert f"site {A} on " in text and ": up, leads 1 shard\n" in text and "nobody is known to lead 1 shard\n" in text
    found = json.loads(said(three[1], "status", "--json").stdout)
    assert [each["leads"] for each in found["sites"]] == [1, 0, 0] and found["unled"] == 1


def test_draining_waits_until_nothing_is_led_here(three: list[Topology]) -> None:
    """The replicas that are played hand nothing over, so who leads says that it still does; the others lead nothing."""
    still = said(three[0], "node", "drain", "--within", "1")
    assert still.exit_code == 1 and "this site still leads 1 shard: `holdfast ds info --verbose`" in still.stderr
    assert is_drained(three[0].run_dir, 0.0) and not is_drained(three[0].run_dir, time.monotonic())
    over = said(three[1], "node", "drain")
    assert over.exit_code == 0 and over.stdout.startswith("This site leads no shard.")
    assert json.loads(said(three[1], "node", "drain", "--json").stdout) == {"led": 0}


def test_a_site_that_does_not_run_has_nothing_to_say(three: list[Topology]) -> None:
    """What it knew is old: others are to be asked."""
    (three[2].data_dir / "run.json").unlink()
    result = said(three[2], "ds", "info")
    assert result.exit_code == 1 and "it is one of several sites: ask at another one" in result.stderr
