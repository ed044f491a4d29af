"""What is encoded is decoded to the same values, however the bytes are cut."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mqtt.decode import Decoder
from mqtt.encode import encode, encode_all
from mqtt.framing import Role
from mqtt.packets import AckKind, AckRun, Connect, Item, Publish, PublishRun
from tests.mqtt.generated import connects, items, merged

VERSIONS = (3, 4, 5)
ROLES: tuple[Role, ...] = ("server", "client")
quick = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def bodies(packets: list[Item]) -> list[bytes]:
    """The stored bodies, which take no part in the equality of ``Publish``."""
    return [packet.body for packet in packets if isinstance(packet, Publish)]


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("role", ROLES)
@quick
@given(data=st.data())
def test_a_stream_comes_back_fed_whole_byte_by_byte_and_cut_anywhere(version: int, role: Role, data: st.DataObject) -> None:
    """Decoding a stream gives its packets, and the cuts change only how runs are grouped."""
    packets = data.draw(st.lists(items(version, role), min_size=1, max_size=6))
    wire = encode_all(version, packets)

    whole = Decoder(version, 1 << 20, role).feed(wire)
    assert whole == merged(packets)
    assert bodies(whole) == bodies(packets)

    single = Decoder(version, 1 << 20, role)
    assert merged([item for byte in wire for item in single.feed(bytes((byte,)))]) == whole
    assert single.held_bytes == 0

    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=4)))
    pieces = [wire[start:end] for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True)]
    cut = Decoder(version, 1 << 20, role)
    assert merged([item for piece in pieces for item in cut.feed(piece)]) == whole


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("role", ROLES)
@quick
@given(data=st.data())
def test_trailing_bytes_are_held_for_the_next_packet(version: int, role: Role, data: st.DataObject) -> None:
    """The unfinished packet behind a whole one is neither decoded nor lost."""
    first, second = data.draw(items(version, role)), data.draw(items(version, role))
    wire, rest = encode(version, first), encode(version, second)
    kept = data.draw(st.integers(0, len(rest) - 1))
    decoder = Decoder(version, 1 << 20, role)
    assert decoder.feed(wire + rest[:kept]) == [first]
    assert decoder.held_bytes == kept
    assert decoder.feed(rest[kept:]) == [second]


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
@quick
@given(data=st.data())
def test_a_server_learns_the_version_from_connect(version: int, data: st.DataObject) -> None:
    """A decoder that was told no version reads a CONNECT and what follows it in that version."""
    connect = data.draw(connects(version))
    packets = data.draw(st.lists(items(version, "server"), max_size=2))
    wire = encode(version, connect) + encode_all(version, packets)
    decoder = Decoder(None, 1 << 20)
    found: list[Item] = []
    for byte in wire:
        found += decoder.feed(bytes((byte,)))
    assert decoder.version == version
    assert merged(found) == [connect, *merged(packets)]
    assert Decoder(None, 1 << 20).feed(wire) == merged(found)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("payload_bytes", [0, 1, 117, 118, 119, 120, 16_370, 16_380, 70_000, 2_097_200])
@pytest.mark.parametrize("flags", [0, 2])
def test_payloads_around_each_length_of_the_length(version: int, payload_bytes: int, flags: int) -> None:
    """Remaining lengths of one to four bytes all stay in one run."""
    topic, body = b"a/b", b"\0" + b"p" * payload_bytes
    run = PublishRun([flags] * 3, [7 if flags else 0] * 3, [topic] * 3, [body] * 3)
    wire = encode(version, run)
    assert Decoder(version, 1 << 22).feed(wire) == [run]
    halves = Decoder(version, 1 << 22)
    assert merged(halves.feed(wire[: len(wire) // 2]) + halves.feed(wire[len(wire) // 2 :])) == [run]


@pytest.mark.parametrize("kind", AckKind)
@pytest.mark.parametrize("count", [1, 2, 9, 10, 11, 63, 64, 65, 129, 400])
def test_runs_of_acknowledgements_of_every_length(kind: AckKind, count: int) -> None:
    """Windows and single steps give the same identifiers, and the packet behind the run is not touched."""
    ids = [1 + index * 157 % 65_535 for index in range(count)]
    other = AckRun(AckKind.PUBREC if kind is AckKind.PUBACK else AckKind.PUBACK, [513])
    wire = encode(5, AckRun(kind, ids)) + encode(5, other)
    decoder = Decoder(5, 100)
    assert decoder.feed(wire) == [AckRun(kind, ids), other]
    assert decoder.feed(wire[:-5]) == ([AckRun(kind, ids[:-1])] if count > 1 else [])
    assert decoder.held_bytes == 3


@pytest.mark.parametrize("head", [b"\x40\x02\x00\x05", b"\x40\x03\x00\x05\x00", b"\x40\x04\x00\x05\x00\x00"])
def test_every_way_to_write_success_joins_the_run(head: bytes) -> None:
    """MQTT 5 can say success in three lengths; all of them are plain acknowledgements."""
    plain = b"\x40\x02\x00\x04"
    assert Decoder(5, 100).feed(plain + head + plain + plain) == [AckRun(AckKind.PUBACK, [4, 5, 4, 4])]


def test_a_long_packet_in_small_pieces_is_joined_once_it_is_there() -> None:
    """A packet of a megabyte in pieces of 1,000 bytes comes out whole, with what follows it."""
    run = PublishRun([0], [0], [b"t"], [b"\0" + bytes(1_000_000)])
    wire = encode(4, run) + encode(4, AckRun(AckKind.PUBACK, [1]))
    decoder = Decoder(4, 2_000_000)
    found = [item for at in range(0, len(wire), 1_000) for item in decoder.feed(wire[at : at + 1_000])]
    assert found == [run, AckRun(AckKind.PUBACK, [1])]


def test_nothing_is_made_of_no_bytes() -> None:
    """An empty read changes nothing."""
    decoder = Decoder(None, 100)
    assert decoder.feed(b"") == []
    assert decoder.feed(b"\x10") == []
    assert decoder.feed(b"") == []
    assert decoder.held_bytes == 1


def test_a_password_is_not_in_the_text_of_a_packet() -> None:
    """What is logged by mistake holds no password."""
    assert "sesame" not in repr(Connect(5, "c", password=b"sesame"))
