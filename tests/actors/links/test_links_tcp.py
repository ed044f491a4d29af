"""Links over real TCP on loopback, with and without TLS: who belongs to the cluster is heard, and what is wrong with others is said."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
import ssl
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from actors.endpoints import Endpoint
from actors.link import PROOF_BYTES_MAX, FramedLink
from actors.links import LinkClient, LinkServer, NotListening
from actors.topology import SitesPlan
from actors.wire import Wire, WireError
from tests.actors.links.ends import LOOPBACK, Ends, passed, wire_of
from tests.actors.links.test_links import SECRET, WITHIN_S, Owner
from tests.actors.places import topology_in
from tests.listening.authority import Authority


@pytest.mark.parametrize("secure", [False, True])
async def test_frames_go_both_ways_over_tcp(tmp_path: Path, authority: Authority, secure: bool) -> None:
    """Of any size and in order, with TLS and without."""
    wire = wire_of(tmp_path, authority) if secure else Wire(SECRET)
    frames = [b"", b"x", b"y" * (10 << 20), *(b"%d" % n for n in range(500))]
    async with Ends(wire, wire) as ends:
        assert await ends.ours.until(1) == ["up shard shard-0:a"]
        for frame in frames:
            ends.client.send(frame)
        assert await ends.theirs.until(1 + len(frames)) == ["up gateway gateway-0:b", *frames]
        for frame in frames:
            ends.theirs.links[0].send(frame)
        assert (await ends.ours.until(1 + len(frames)))[1:] == frames


async def said(lines: Sequence[Mapping[str, object]], wanted: set[str]) -> list[str]:
    """What was said of who was refused, once all of this was."""

    def causes() -> list[str]:
        return [str(line["cause"]) for line in lines if line["event"] == "link.refused"]

    async with asyncio.timeout(WITHIN_S):
        while not all(any(each in cause for cause in causes()) for each in wanted):  # noqa: ASYNC110
            await asyncio.sleep(0)
    return causes()


PLAIN = "it does not speak TLS, and this end has cluster.tls"


@pytest.mark.parametrize(
    ("case", "wanted"),
    [
        ("server of another CA", {"its certificate is not believed: "}),
        ("client of another CA", {"its certificate is not believed: "}),
        ("server expired", {"its certificate is not believed: certificate has expired"}),
        ("client expired", {"its certificate is not believed: certificate has expired"}),
        ("client without", {"it shows no certificate"}),
        ("plain client", {PLAIN}),
        ("plain server", {PLAIN, "it speaks TLS, and this end has no cluster.tls"}),
        ("secret", {"it did not prove the secret of this broker: the secrets differ"}),
    ],
)
async def test_who_does_not_belong_here_is_not_heard_and_one_sentence_says_why(
    tmp_path: Path, authority: Authority, case: str, wanted: set[str]
) -> None:
    """Whichever end it is; the client says it once, however often it dials."""
    good = wire_of(tmp_path, authority)
    stranger = Authority(tmp_path / "stranger")
    server, client = {
        "server of another CA": (wire_of(tmp_path, stranger, ca=authority.ca), good),
        "client of another CA": (good, wire_of(tmp_path, stranger, ca=authority.ca)),
        "server expired": (wire_of(tmp_path, authority, days=-1), good),
        "client expired": (good, wire_of(tmp_path, authority, days=-1)),
        "client without": (good, dataclasses.replace(good, client=_without_certificate(authority))),
        "plain client": (good, Wire(good.secret)),
        "plain server": (Wire(good.secret), good),
        "secret": (good, dataclasses.replace(good, secret=b"t" * 32)),
    }[case]
    with capture_logs() as lines:
        async with Ends(server, client) as ends:
            await said(lines, wanted)
            for _ in range(2):
                # It goes on dialling, and nothing changes.
                ends.client.look_again()
                await asyncio.sleep(0)
        assert ends.ours.heard == [] and ends.theirs.heard == []
    by_client = [line for line in lines if line["event"] == "link.refused" and line["role"] == "gateway"]
    assert len(by_client) == len({line["cause"] for line in by_client})
    assert not [line for line in lines if line["event"] == "loop.fault"]


def _without_certificate(authority: Authority) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.ca)
    context.check_hostname = False
    return context


async def test_a_certificate_of_the_cluster_is_enough_whatever_address_was_dialled(tmp_path: Path, authority: Authority) -> None:
    """It names localhost and 127.0.0.1, and the site is at 127.0.0.2."""
    wire = wire_of(tmp_path, authority)
    owner, ours = Owner(), Owner()
    server = LinkServer([Endpoint(host="127.0.0.2", port=0)], owner, wire, "shard", "shard-0:a")
    await server.start()
    client = LinkClient(lambda: Endpoint(host="127.0.0.2", port=server.ports[0]), ours, wire, "gateway", "gateway-0:b")
    client.start()
    assert await ours.until(1) == ["up shard shard-0:a"]
    assert isinstance(client.link, FramedLink) and client.link._transport is not None
    assert client.link._transport.get_extra_info("cipher")[1] in ("TLSv1.2", "TLSv1.3")
    below = socket.socket(fileno=socket.dup(client.link._transport.get_extra_info("socket").fileno()))
    assert below.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    below.close()
    await client.stop()
    await server.stop()


async def test_when_the_part_has_moved_the_link_is_dialled_anew(tmp_path: Path, authority: Authority) -> None:
    """Down of the one before up of the other; while nobody knows, and when nothing has changed, the link stays."""
    wire = wire_of(tmp_path, authority)
    owners = Owner(), Owner()
    servers = [LinkServer([LOOPBACK], owner, wire, "shard", f"shard-0:{n}") for n, owner in enumerate(owners)]
    for server in servers:
        await server.start()
    places: list[Endpoint | None] = [Endpoint(host="127.0.0.1", port=server.ports[0]) for server in servers]
    at: list[Endpoint | None] = [None]
    ours = Owner()
    client = LinkClient(lambda: at[0], ours, wire, "gateway", "gateway-0:b")
    client.look_again()
    client.start()
    await asyncio.sleep(0)
    assert client.link is None
    at[0] = places[0]
    client.look_again()
    await ours.until(1)
    for unchanged in (None, places[0]):
        at[0] = unchanged
        client.look_again()
        assert client.link is not None and client.link.up
    at[0] = places[1]
    client.look_again()
    client.look_again()
    assert await ours.until(3) == ["up shard shard-0:0", "down", "up shard shard-0:1"]
    assert (await owners[0].until(2))[1] == "down"
    await client.stop()
    for server in servers:
        await server.stop()


async def test_it_does_not_wait_for_somebody_who_answers_nothing_when_the_part_has_moved(tmp_path: Path) -> None:
    """The handshake of TLS hangs there, and the proof of who speaks none; look_again ends both."""
    wire = Wire(SECRET)
    mute = socket.create_server(("127.0.0.1", 0))
    theirs, ours = Owner(), Owner()
    server = LinkServer([LOOPBACK], theirs, wire, "shard", "shard-0:a")
    await server.start()
    at = Endpoint(host="127.0.0.1", port=mute.getsockname()[1])
    where = [at]
    client = LinkClient(lambda: where[0], ours, wire, "gateway", "gateway-0:b")
    client.start()
    await passed(lambda: client.link is not None and not client.link.lost)
    where[0] = Endpoint(host="127.0.0.1", port=server.ports[0])
    client.look_again()
    assert await ours.until(1) == ["up shard shard-0:a"]
    await client.stop()
    await server.stop()
    mute.close()


async def test_a_handshake_of_tls_that_hangs_is_given_up_when_the_part_has_moved(tmp_path: Path, authority: Authority) -> None:
    """It waits for the other's hello, and nothing else would end it before CONNECT_SECONDS."""
    wire = wire_of(tmp_path, authority)
    mute = socket.create_server(("127.0.0.1", 0))
    mute.setblocking(False)
    theirs, ours = Owner(), Owner()
    server = LinkServer([LOOPBACK], theirs, wire, "shard", "shard-0:a")
    await server.start()
    where = [Endpoint(host="127.0.0.1", port=mute.getsockname()[1])]
    client = LinkClient(lambda: where[0], ours, wire, "gateway", "gateway-0:b")
    client.start()
    taken, _ = await asyncio.get_running_loop().sock_accept(mute)
    assert await asyncio.get_running_loop().sock_recv(taken, 1) == b"\x16"
    where[0] = Endpoint(host="127.0.0.1", port=server.ports[0])
    client.look_again()
    assert await ours.until(1) == ["up shard shard-0:a"]
    await client.stop()
    await server.stop()
    taken.close()
    mute.close()


async def test_a_server_that_comes_back_at_its_port_is_found(tmp_path: Path, authority: Authority) -> None:
    """As a process that was started again; the port is free as soon as the former has stopped."""
    wire = wire_of(tmp_path, authority)
    ours = Owner()
    where: list[Endpoint] = [LOOPBACK]
    client = LinkClient(lambda: where[0], ours, wire, "gateway", "gateway-0:b")
    for life in range(3):
        server = LinkServer(where, Owner(), wire, "shard", f"shard-0:{life}")
        await server.start()
        where = [Endpoint(host="127.0.0.1", port=server.ports[0])]
        if life == 0:
            client.start()
        assert (await ours.until(1 + 2 * life))[-1] == f"up shard shard-0:{life}"
        await server.stop()
        await ours.until(2 + 2 * life)
    await client.stop()


async def test_a_port_in_use_is_named_with_its_setting_and_nothing_is_left_open(tmp_path: Path) -> None:
    """The unix socket beside it is closed again."""
    taken = socket.create_server(("127.0.0.1", 0))
    at = Endpoint(host="127.0.0.1", port=taken.getsockname()[1])
    path = tmp_path / "l.sock"
    server = LinkServer([Endpoint(str(path)), at], Owner(), Wire(SECRET), "site", "site-0:a")
    with pytest.raises(NotListening, match=f"^the site cannot listen at {at}, which is counted from cluster.listen: address already"):
        await server.start()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_unix_connection(str(path))
    taken.close()


async def test_a_server_listens_at_all_of_its_endpoints(tmp_path: Path) -> None:
    """A unix socket for its own site, a port for the others."""
    path = Endpoint(str(tmp_path / "l.sock"))
    theirs = Owner()
    server = LinkServer([path, LOOPBACK], theirs, Wire(SECRET), "site", "site-0:a")
    await server.start()
    for at in (path, Endpoint(host="127.0.0.1", port=server.ports[0])):
        ours = Owner()
        client = LinkClient(lambda at=at: at, ours, Wire(SECRET), "site", "site-0:b")  # type: ignore[misc]
        client.start()
        assert await ours.until(1) == ["up site site-0:a"]
        await client.stop()
        await ours.until(2)
    await server.stop()


async def test_what_a_stranger_says_is_not_waited_for_at_length(tmp_path: Path) -> None:
    """A frame before the proof may have PROOF_BYTES_MAX, and a beat is nothing."""
    theirs = Owner()
    server = LinkServer([LOOPBACK], theirs, Wire(SECRET), "shard", "shard-0:a")
    await server.start()
    with capture_logs() as lines:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.ports[0])
        writer.write(struct.pack(">II", 0xFFFFFFFF, PROOF_BYTES_MAX + 1))
        async with asyncio.timeout(WITHIN_S):
            with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
                await reader.readexactly(1 << 16)
        writer.close()
    assert theirs.heard == []
    assert [line["cause"] for line in lines if line["event"] == "link.refused"] == ["what it says is no link's"]
    await server.stop()


async def test_a_certificate_can_be_renewed_while_everything_runs(tmp_path: Path, authority: Authority) -> None:
    """The next link has the new one, at both ends; one that does not fit its key changes nothing, and is said."""
    first = authority.issue("renewed")
    plan = SitesPlan(3, 3, "127.0.0.1", 7400, authority.ca, first.cert, first.key)
    wire = Wire.of(dataclasses.replace(topology_in(tmp_path), sites=plan))

    def serial() -> int:
        """Of the certificate that who dials is shown."""
        assert isinstance(ends.client.link, FramedLink) and ends.client.link._transport is not None
        shown = ends.client.link._transport.get_extra_info("ssl_object").getpeercert()
        return int(shown["serialNumber"], 16)

    async def again() -> None:
        heard = len(ends.ours.heard)
        assert ends.client.link is not None
        ends.client.link.close("another handshake is wanted")
        await ends.ours.until(heard + 2)

    async with Ends(wire, wire) as ends:
        await ends.ours.until(1)
        assert serial() == first.serial
        second = authority.issue("renewed")
        await again()
        assert serial() == second.serial
        key = Path(second.key).read_bytes()
        Path(second.key).write_bytes(Path(authority.issue("another").key).read_bytes())
        with capture_logs() as lines:
            await again()
        assert serial() == second.serial
        refused = [line for line in lines if line["event"] == "link.certificates_refused"]
        assert len(refused) == 1 and "key values mismatch; those that were read before stay in force" in str(refused[0]["cause"])
        Path(second.key).write_bytes(key)


def test_rights_that_are_given_are_a_change(tmp_path: Path, authority: Authority) -> None:
    """Of a file that could not be read nothing else changes."""
    issued = authority.issue("broker")
    plan = SitesPlan(3, 3, "127.0.0.1", 7400, authority.ca, issued.cert, issued.key)
    wire = Wire.of(dataclasses.replace(topology_in(tmp_path), sites=plan))
    with capture_logs() as lines:
        wire.look()
        Path(issued.key).chmod(0o640)
        wire.look()
        wire.look()
    assert [line["event"] for line in lines] == ["link.certificates_read"]


@pytest.mark.parametrize("broken", ["ca", "cert", "key"])
@pytest.mark.parametrize("how", ["missing", "rubbish"])
def test_a_file_that_is_not_right_is_named_with_its_setting(tmp_path: Path, authority: Authority, broken: str, how: str) -> None:
    """When the context is made, and not when somebody dials."""
    issued = authority.issue("broken")
    files = {"ca": authority.ca, "cert": issued.cert, "key": issued.key}
    wrong = tmp_path / "wrong.pem"
    if how == "rubbish":
        wrong.write_text("rubbish")
    files[broken] = str(wrong)
    plan = SitesPlan(3, 3, "127.0.0.1", 7400, files["ca"], files["cert"], files["key"])
    with pytest.raises(WireError) as raised:
        Wire.of(dataclasses.replace(topology_in(tmp_path), sites=plan))
    assert f"cluster.tls.{broken}" in str(raised.value) and str(wrong) in str(raised.value) and "\n" not in str(raised.value)


def test_a_broker_that_stands_alone_has_no_tls(tmp_path: Path) -> None:
    """And the secret that lies in its data directory."""
    topology = topology_in(tmp_path)
    assert Wire.of(topology) == Wire(topology.secret)


@pytest.mark.parametrize("secure", [False, True])
async def test_a_part_that_moves_in_any_turn_of_the_loop_while_it_is_dialled_is_linked_where_it_is(
    tmp_path: Path, authority: Authority, secure: bool
) -> None:
    """Also in the turn in which the connection was made and nobody has heard of it: uvloop closes it then, and tells nobody."""
    wire = wire_of(tmp_path, authority) if secure else Wire(SECRET)
    async with Ends(wire, wire) as before, Ends(wire, wire) as after:
        for turns in range(40):
            at = before.at
            ours = Owner()
            client = LinkClient(lambda: at, ours, wire, "gateway", f"gateway-{turns}:b")  # noqa: B023
            client.start()
            for _ in range(turns):
                await asyncio.sleep(0)
            at = after.at
            client.look_again()
            await passed(lambda: f"up gateway gateway-{turns}:b" in after.theirs.heard)  # noqa: B023
            await client.stop()
            await passed(lambda: ours.heard.count("down") == len(ours.links))  # noqa: B023
