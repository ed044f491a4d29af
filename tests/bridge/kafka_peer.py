"""Kafka as the other side of a target, for tests/bridge/test_target_contract.py and tests of its own."""

from __future__ import annotations

from typing import Any

from bridge.port import Message, Target
from deploy.bridges.kafka_target import KafkaTarget
from tests.bridge.batches import context, message
from tests.bridge.peers import Got, Peer

BATCH_BYTES_MAX = 200_000
PARTITIONS = 1
"""So that there is one order of everything."""


class KafkaPeer(Peer):
    partitions = PARTITIONS

    async def start(self) -> None:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        from tests.bridge.kafka_cluster import TOPIC, KafkaCluster

        self.cluster = KafkaCluster(self.partitions)
        self.topic = TOPIC
        self.records: list[Any] = []
        self._consumer: Any = AIOKafkaConsumer(bootstrap_servers=self.cluster.servers, group_id=None, auto_offset_reset="earliest")
        await self._consumer.start()
        self._consumer.assign([TopicPartition(TOPIC, number) for number in range(self.partitions)])

    def target(self, **more: object) -> Target:
        options = {"servers": self.cluster.servers, "topic": self.topic, "batch_bytes_max": BATCH_BYTES_MAX, "timeout_ms": 1000, **more}
        return KafkaTarget(options, context(self.directory))

    def refused(self, number: int) -> Message | None:
        return message(number, payload=b"x" * (BATCH_BYTES_MAX + 1))

    async def got(self) -> list[Got]:
        for records in (await self._consumer.getmany(timeout_ms=20)).values():
            self.records += records
        return [(dict(record.headers)["holdfast-id"].decode(), record.value) for record in self.records]

    async def away(self) -> None:
        self.cluster.down()

    async def back(self) -> None:
        self.cluster.up()

    async def end(self) -> None:
        await self._consumer.stop()
        self.cluster.end()
