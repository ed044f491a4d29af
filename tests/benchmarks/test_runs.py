"""Frames stamped and read many at a time, against reading them one by one."""

from __future__ import annotations

import zlib

import mqtt5
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import runs, wire

PAYLOAD = 32


def frames(version: wire.Version, qos: wire.QoS, sequences: list[int], *, topics: tuple[int, ...] = (0,), prefix: str = "r") -> bytes:
    block = runs.PublishBlock(version, qos, prefix, topics, PAYLOAD, 7, max(1, len(sequences)))
    numbers = np.array(sequences, np.int64)
    return bytes(block.stamp(numbers, numbers % 65535 + 1, 1000))


def received(data: bytes) -> runs.Bytes:
    return np.frombuffer(data, np.uint8).copy()


def one_by_one(data: bytes) -> list[bytes]:
    out = []
    while (found := wire.read_packet(data)) is not None:
        whole = len(data) - len(found[1])
        out.append(data[:whole])
        data = found[1]
    return out


acks = st.integers(1, 65535).map(lambda packet_id: b"\x40\x02" + packet_id.to_bytes(2, "big"))
long_acks = st.tuples(st.integers(1, 65535), st.sampled_from([0, 0x10, 0x97]), st.sampled_from([b"", b"\0"])).map(
    lambda a: bytes([0x40, 3 + len(a[2])]) + a[0].to_bytes(2, "big") + bytes([a[1]]) + a[2]
)
publishes = st.tuples(st.sampled_from([0, 1, 2]), st.booleans(), st.integers(0, 200), st.integers(1, 300)).map(
    lambda a: (
        bytes([0x30 | a[0] << 1 | (8 if a[0] and a[1] else 0)])
        + wire.encode_length(2 + a[3] + (2 if a[0] else 0) + a[2])
        + wire.text("t" * a[3])
        + (b"\0\x05" if a[0] else b"")
        + b"p" * a[2]
    )
)
pings = st.just(b"\xd0\x00")
# Each packet is repeated a few times, so that there are runs to be cut as well as singles.
streams = st.lists(st.tuples(acks | long_acks | publishes | pings, st.integers(1, 5)), max_size=30).map(
    lambda parts: b"".join(packet * times for packet, times in parts)
)


@given(streams, st.integers(0, 400))
def test_runs_hold_the_packets_that_reading_one_by_one_finds(stream: bytes, cut: int) -> None:
    """Whatever the mixture, and wherever the stream is cut: same packets, same order, same rest."""
    stream = stream[: max(0, len(stream) - cut)]
    found, used = runs.split_runs(received(stream), len(stream))
    assert [row.tobytes() for run in found for row in run.rows] == one_by_one(stream)
    assert used == sum(map(len, one_by_one(stream)))
    assert all(run.kind == int(row[0]) for run in found for row in run.rows)


def test_packets_of_changing_length_are_each_a_run() -> None:
    """The look ahead shrinks after short runs and grows again; both ways nothing is lost."""
    short, long = b"\x40\x02\x00\x01", b"\x40\x03\x00\x02\x00"
    stream = (short + long) * 500 + short * 5000
    found, used = runs.split_runs(received(stream), len(stream))
    assert used == len(stream)
    assert sum(len(run.rows) for run in found) == 6000
    assert len(found) < 1020


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_stamped_frames_are_read_back(version: wire.Version, qos: wire.QoS) -> None:
    """Publisher, sequence, time, topic and packet identifier come out as they went in."""
    sequences = [0, 1, 2, 3, 65534, 65535, 1_000_000]
    data = frames(version, qos, sequences, topics=(4, 9, 123456))
    found, _ = runs.split_runs(received(data), len(data))
    (part,) = [part for run in found for part in runs.deliveries(run, PAYLOAD)]
    stamps = runs.read_stamps(part.stamps)
    assert stamps.sequences.tolist() == sequences
    assert set(stamps.publishers.tolist()) == {7}
    assert set(stamps.sent_ns.tolist()) == {1000}
    assert runs.read_topics(part.digits).tolist() == [(4, 9, 123456)[s % 3] for s in sequences]
    assert part.qos == qos
    if qos:
        assert part.ids is not None
        assert [a << 8 | b for a, b in part.ids.tolist()] == [s % 65535 + 1 for s in sequences]
    else:
        assert part.ids is None


def test_another_codec_reads_the_frames_the_same() -> None:
    """A frame of MQTT 5 is what the mqtt5 package takes for a PUBLISH with that topic, identifier and payload."""
    raw = frames(5, 1, [5], topics=(3,))
    packet, used = mqtt5.read(memoryview(raw))
    assert isinstance(packet, mqtt5.PublishPacket)
    assert used == len(raw)
    assert (packet.topic, packet.packet_id, len(packet.payload)) == ("r/000003", 6, PAYLOAD)
    assert packet.payload[:16] == (7).to_bytes(4, "little") + (5).to_bytes(4, "little") + (1000).to_bytes(8, "little")


def test_one_stamped_frame_is_the_first_of_a_stamped_batch() -> None:
    """The cheap way for one message and the way for many write the same bytes."""
    for version in (4, 5):
        for qos in (0, 1, 2):
            one = runs.PublishBlock(version, qos, "r", (1, 2), PAYLOAD, 7, 4)
            assert bytes(one.stamp_one(9, 10, 1000)) == frames(version, qos, [9], topics=(1, 2))


def test_a_single_delivery_outlives_the_buffer() -> None:
    """What a delivery says must not change when the next bytes come in, not even for a run of one."""
    data = received(frames(4, 1, [41]))
    (run,), _ = runs.split_runs(data, len(data))
    (part,) = runs.deliveries(run, PAYLOAD)
    data[:] = 0xFF
    assert runs.read_stamps(part.stamps).sequences.tolist() == [41]
    assert runs.read_topics(part.digits).tolist() == [0]


def test_deliveries_of_one_length_with_other_topic_lengths_are_cut_apart() -> None:
    """A broker may put a property where another message has a longer topic; the length of the packet does not tell."""
    a, b = frames(4, 1, [1, 2], prefix="ab"), frames(5, 1, [3], prefix="a")
    data = a + b + a
    (run,), _ = runs.split_runs(received(data), len(data))
    parts = runs.deliveries(run, PAYLOAD)
    assert [runs.read_stamps(part.stamps).sequences.tolist() for part in parts] == [[1, 2], [3], [1, 2]]


def test_a_message_of_another_run_is_told() -> None:
    """A payload too short to be ours is no reason for a wrong account."""
    data = b"\x30\x06\x00\x01t123"
    (run,), _ = runs.split_runs(received(data), len(data))
    with pytest.raises(wire.Refused, match="none of this run"):
        runs.deliveries(run, PAYLOAD)


def test_a_topic_that_ends_in_no_number_gives_no_topic() -> None:
    """Letters must not add up to some other topic's number."""
    assert runs.read_topics(received(b"000012" + b"00a012" + b"/00012").reshape(3, 6)).tolist() == [12, -1, -1]


def test_reason_codes_that_mean_no_are_found() -> None:
    """0x80 and above; a short acknowledgement and `no matching subscribers` mean yes."""
    yes = b"\x40\x02\x00\x01" * 2
    (run,), _ = runs.split_runs(received(yes), len(yes))
    assert runs.refusals(run) is None
    mixed = b"\x40\x03\x00\x01\x10" + b"\x40\x03\x00\x02\x97" + b"\x40\x03\x00\x03\x00"
    (run,), _ = runs.split_runs(received(mixed), len(mixed))
    no = runs.refusals(run)
    assert no is not None
    assert no.tolist() == [False, True, False]
    assert runs.packet_ids(run).tolist() == [1, 2, 3]


def test_acknowledgements_carry_the_identifiers_they_answer() -> None:
    """The bytes of a QoS 2 step, in order."""
    data = b"\x50\x02\x12\x34" + b"\x50\x02\xff\xff"
    (run,), _ = runs.split_runs(received(data), len(data))
    assert runs.acknowledge(wire.PUBREL, runs.id_bytes(run)) == b"\x62\x02\x12\x34\x62\x02\xff\xff"


def test_random_padding_differs_from_frame_to_frame_and_hides_nothing() -> None:
    """A store that compresses finds nothing to take away, and the account reads the same."""
    block = runs.PublishBlock(4, 1, "r", (0,), 4096, 7, 2, random_payload=True)
    data = bytes(block.stamp(np.array([1, 2]), np.array([1, 2]), 1000))
    assert len(zlib.compress(data)) > len(data) * 0.98
    (run,), _ = runs.split_runs(received(data), len(data))
    (part,) = runs.deliveries(run, 4096)
    assert runs.read_stamps(part.stamps).sequences.tolist() == [1, 2]
