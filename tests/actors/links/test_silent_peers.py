"""Who says nothing any more over TCP is cut off; who beats is not."""

from __future__ import annotations

import asyncio
import dataclasses
import signal
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from actors.endpoints import Endpoint
from actors.links import LinkClient, LinkServer
from actors.wire import SILENT_BEATS_MAX, Wire
from tests.actors.links.ends import LOOPBACK, passed, wire_of
from tests.actors.links.test_links import SECRET, Owner
from tests.listening.authority import Authority


class Relay:
    """Passes what two ends say, and from `silent` on nothing, with their connections held."""

    def __init__(self, to: Endpoint) -> None:
        self._to = to
        self.silent = False
        self.passed = 0
        self._held: list[asyncio.StreamWriter] = []

    async def start(self) -> Endpoint:
        self._server = await asyncio.start_server(self._came, "127.0.0.1", 0)
        return Endpoint(host="127.0.0.1", port=self._server.sockets[0].getsockname()[1])

    def stop(self) -> None:
        self._server.close()
        for writer in self._held:
            writer.close()

    async def _came(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward, back = await asyncio.open_connection(self._to.host, self._to.port)
        self._held += [writer, back]
        await asyncio.gather(self._pass(reader, back), self._pass(onward, writer), return_exceptions=True)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            if not self.silent:
                writer.write(data)
                self.passed += 1
        if not self.silent:
            writer.close()


@pytest.mark.parametrize("secure", [False, True])
async def test_a_peer_that_goes_silent_is_cut_off_and_one_that_beats_is_not(tmp_path: Path, authority: Authority, secure: bool) -> None:
    """A machine that lost its power closes nothing, and its kernel acknowledges nothing: silence is all there is to go by."""
    wire = dataclasses.replace(wire_of(tmp_path, authority) if secure else Wire(SECRET), beat_seconds=0.005)
    theirs, ours = Owner(), Owner()
    server = LinkServer([LOOPBACK], theirs, wire, "shard", "shard-0:a")
    await server.start()
    relay = Relay(Endpoint(host="127.0.0.1", port=server.ports[0]))
    at = await relay.start()
    client = LinkClient(lambda: at, ours, wire, "gateway", "gateway-0:b")
    client.start()
    await ours.until(1)
    await theirs.until(1)
    begun = relay.passed
    await passed(lambda: relay.passed > begun + 4 * SILENT_BEATS_MAX)
    assert len(ours.heard) == len(theirs.heard) == 1
    with capture_logs() as lines:
        relay.silent = True
        await ours.until(2)
        await theirs.until(2)
    assert ours.heard[1] == theirs.heard[1] == "down"
    assert sum(line.get("cause") == f"nothing came from it for {SILENT_BEATS_MAX * 0.005:g} s" for line in lines) == 2
    await client.stop()
    await server.stop()
    relay.stop()


@pytest.mark.slow
async def test_a_process_that_is_stopped_is_cut_off(tmp_path: Path) -> None:
    """Its kernel goes on acknowledging, so only the beats tell."""
    code = (
        "import asyncio, sys\n"
        "from actors.endpoints import Endpoint\n"
        "from actors.links import LinkServer\n"
        "from actors.wire import Wire\n"
        "from tests.actors.links.test_links import Owner\n"
        "async def main():\n"
        "    server = LinkServer([Endpoint(host='127.0.0.1', port=0)], Owner(), Wire(b's' * 32, beat_seconds=0.05), 'shard', 'shard-0:a')\n"
        "    await server.start()\n"
        "    print(server.ports[0], flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        port = int(await process.stdout.readline())
        ours = Owner()
        at = Endpoint(host="127.0.0.1", port=port)
        client = LinkClient(lambda: at, ours, Wire(SECRET, beat_seconds=0.05), "gateway", "gateway-0:b")
        client.start()
        await ours.until(1)
        process.send_signal(signal.SIGSTOP)
        assert (await ours.until(2))[1] == "down"
        process.send_signal(signal.SIGCONT)
        assert (await ours.until(3))[2] == "up shard shard-0:a"
        await client.stop()
    finally:
        process.kill()
        await process.wait()
