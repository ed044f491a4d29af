"""The certificates of docs/security.md, made with the lines that stand there, link two processes."""

from __future__ import annotations

import asyncio
import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest

from actors.endpoints import Endpoint
from actors.links import LinkClient
from actors.topology import SitesPlan, Topology
from actors.wire import Wire, check_certificates
from config.secrets import CLUSTER_SECRET_BYTES_MIN, ClusterSecret, read_secret
from tests.actors.links.test_links import Owner
from tests.actors.places import topology_in
from tests.house.tree import ROOT

SERVER = """
import asyncio, sys
from actors.endpoints import Endpoint
from actors.links import LinkServer
from actors.topology import Topology
from actors.wire import Wire
from tests.actors.links.test_links import Owner

async def main():
    wire = Wire.of(Topology.from_json(sys.stdin.read()))
    server = LinkServer([Endpoint(host="127.0.0.1", port=0)], Owner(), wire, "site", "site-0:a")
    await server.start()
    print(server.ports[0], flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def topology_of(directory: Path, site: str, secret: bytes) -> Topology:
    plan = SitesPlan(3, 3, "127.0.0.1", 7400, str(directory / "ca.pem"), str(directory / f"{site}.pem"), str(directory / f"{site}.key"))
    return dataclasses.replace(topology_in(directory), sites=plan, secret=secret)


def _run_the_lines(directory: Path) -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    block = re.search(r"```sh\n((?:openssl|chmod)[^`]*)```", page)
    assert block is not None
    lines = block[1].splitlines()
    assert len(lines) == 5
    for line in (*lines, *[line.replace("site.", "other.") for line in lines[1:3]]):
        subprocess.run(line, shell=True, check=True, cwd=directory, capture_output=True)


@pytest.mark.slow
async def test_the_lines_of_the_page_make_what_two_sites_need(tmp_path: Path) -> None:
    """Five of them; the second and third again for the other site."""
    _run_the_lines(tmp_path)
    secret = read_secret(ClusterSecret.parse(f"file://{tmp_path / 'cluster.secret'}"), {})
    assert len(secret) >= CLUSTER_SECRET_BYTES_MIN
    here, there = topology_of(tmp_path, "site", secret), topology_of(tmp_path, "other", secret)
    for topology in (here, there):
        check_certificates(topology.sites)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVER, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )  # fmt: skip
    try:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(there.to_json().encode())
        process.stdin.close()
        at = Endpoint(host="127.0.0.1", port=int(await process.stdout.readline()))
        ours = Owner()
        client = LinkClient(lambda: at, ours, Wire.of(here), "site", "site-0:b")
        client.start()
        assert await ours.until(1) == ["up site site-0:a"]
        await client.stop()
    finally:
        process.kill()
        await process.wait()
