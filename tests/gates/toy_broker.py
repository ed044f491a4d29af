"""A broker of one page that only acknowledges, so that the proof of gate 3 is itself tested on real calls to a real RocksDB.

``python -m tests.gates.toy_broker PORT DIRECTORY MODE`` takes CONNECT and PUBLISH at QoS 1 (3.1.1) and stores what arrived
between two turns of its loop. MODE says what it does then: ``honest`` syncs and acknowledges; ``early`` acknowledges and
syncs; ``never`` acknowledges without a sync; ``behind`` starts its sync before its write.
"""

from __future__ import annotations

import asyncio
import sys

from rocksdict import Options, Rdict, WriteBatch, WriteOptions

from tests.broker import wire

UNSYNCED = WriteOptions()
UNSYNCED.sync = False


class Toy:
    def __init__(self, directory: str, mode: str) -> None:
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        self._store = Rdict(directory, options)
        self._mode = mode
        self._stored = 0
        self._arrived: list[tuple[asyncio.StreamWriter, wire.Publish]] = []
        self._wake = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        packets = wire.Reader()
        while data := await reader.read(65536):
            for packet in packets.feed(data):
                if packet.kind == 1:
                    writer.write(b"\x20\x02\x00\x00")
                elif packet.kind == wire.PUBLISH:
                    self._arrived.append((writer, wire.read_publish(4, packet.flags, packet.body)))
                    self._wake.set()
        writer.close()

    async def commit(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            arrived, self._arrived = self._arrived, []
            if self._mode == "behind":
                await self._sync()
            batch = WriteBatch(raw_mode=True)
            for _, message in arrived:
                batch.put(b"%08d" % self._stored, message.topic.encode() + message.payload)
                self._stored += 1
            self._store.write(batch, UNSYNCED)
            if self._mode == "early":
                self._acknowledge(arrived)
                await self._sync()
                continue
            if self._mode == "honest":
                await self._sync()
            self._acknowledge(arrived)

    async def _sync(self) -> None:
        await asyncio.to_thread(self._store.flush_wal, True)

    def _acknowledge(self, arrived: list[tuple[asyncio.StreamWriter, wire.Publish]]) -> None:
        for writer, message in arrived:
            writer.write(wire.answer(wire.PUBACK, message.packet_id))


async def main() -> None:
    toy = Toy(sys.argv[2], sys.argv[3])
    await asyncio.start_server(toy.serve, "127.0.0.1", int(sys.argv[1]))
    print("ready", flush=True)
    await toy.commit()


if __name__ == "__main__":
    asyncio.run(main())
