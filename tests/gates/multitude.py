"""Very many durable sessions whose clients are away, and messages on very many topics, made by clients over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from tests.broker import wire
from tests.gates.gate import GateFailed

AT_ONCE = 64
WINDOW = 500
EXPIRY_S = 7 * 86_400
PATIENCE_S = 120.0


async def sessions(port: int, clients: Sequence[str], *filters: Sequence[str]) -> None:
    """Each client connects, subscribes to its filter of each of these and leaves; its session stays."""
    left = iter(zip(clients, zip(*filters, strict=True), strict=True))

    async def some() -> None:
        for client, wanted in left:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(
                wire.connect(5, client, clean=False, keep_alive_s=0, expiry_s=EXPIRY_S, receive_maximum=100)
                + b"".join([wire.subscribe(5, at, topic_filter, 1) for at, topic_filter in enumerate(wanted, 1)])
            )
            await _until(reader, wire.SUBACK, len(wanted))
            writer.write(wire.disconnect())
            writer.close()
            await writer.wait_closed()

    await asyncio.gather(*[some() for _ in range(AT_ONCE)])


async def messages(port: int, client: str, topics: Sequence[str], payload: bytes = b"21.5") -> None:
    """One at QoS 1 on each topic, all acknowledged."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(wire.connect(5, client, clean=True, keep_alive_s=0, expiry_s=0, receive_maximum=100))
    for part in _parts(topics):
        writer.write(b"".join([wire.publish(5, topic, payload, 1, at) for at, topic in enumerate(part, 1)]))
        await _until(reader, wire.PUBACK, len(part))
    writer.write(wire.disconnect())
    writer.close()
    await writer.wait_closed()


def _parts(topics: Sequence[str]) -> Iterator[Sequence[str]]:
    # A client keeps to the broker's Receive Maximum, which is more than this.
    for start in range(0, len(topics), WINDOW):
        yield topics[start : start + WINDOW]


async def _until(reader: asyncio.StreamReader, kind: int, count: int) -> None:
    """So many packets of this kind have come."""
    packets = wire.Reader()
    while count:
        data = await asyncio.wait_for(reader.read(1 << 16), PATIENCE_S)
        if not data:
            raise GateFailed(f"a connection was closed while {count} packets of kind {kind} were missing")
        count -= sum(packet.kind == kind for packet in packets.feed(data))
