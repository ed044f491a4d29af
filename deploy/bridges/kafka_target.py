"""A target of one's own for bridges: Kafka, by aiokafka.  An example of the port (bridge/port.py; docs/bridge.md, "Targets of your own").

    pip install aiokafka
    PYTHONPATH=deploy/bridges holdfast up ...
    holdfast bridge add log filter='plant/#' type=plugin plugin.target=kafka_target:KafkaTarget \
        plugin.options='{"servers": "127.0.0.1:9092", "topic": "mqtt"}'

One topic of Kafka takes all messages of the bridge.  The key of a record is that of the message (its MQTT topic, unless the transform says
otherwise), so what has the same one lies in one partition, in its order.  Headers say what else there is; `holdfast-id` is the same for a
message for ever.

At least once: what was under way when an answer was lost is there twice, with the same `holdfast-id`.  Kafka's own idempotence would not
change that, as it ends with the connection; so records of a partition are sent batch after batch, each when the one before was accepted,
and none passes one that has failed.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

from bridge.port import Accepted, Batch, Context, Message, Misconfigured, Outcome, Refusal, Unavailable

OPTIONS: Final = {
    "servers": "",
    "topic": "",
    "compression": "",
    "batch_bytes_max": 900_000,
    "timeout_ms": 10_000,
    "security": "PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "user": "",
    "password_file": "",
    "ca": "",
}
"""And what they are unless somebody says otherwise; servers and topic have to be said.  timeout_ms: how long Kafka may take to accept a
batch, tries included, which should be longer than it takes to elect another leader."""
CLOSE_S: Final = 4.0
_OVERHEAD: Final = 100
"""Of a batch with one record, about."""
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_ending: set[asyncio.Future[Any]] = set()
"""Connections that are being closed: what they still have under way ends within timeout_ms."""


class _Record(NamedTuple):
    """place: of the message in its batch."""

    place: int
    key: bytes
    value: bytes
    at_ms: int
    headers: list[tuple[str, bytes]]

    @property
    def size(self) -> int:
        return _OVERHEAD + len(self.key) + len(self.value) + sum([len(name) + len(value) + 10 for name, value in self.headers])


class KafkaTarget:
    """made -> opened -> (delivers) -> closed."""

    exactly_once: ClassVar[bool] = False

    def __init__(self, options: Mapping[str, Any], context: Context) -> None:
        try:
            import aiokafka
            import aiokafka.partitioner
        except ImportError:
            raise Misconfigured("this target needs the package aiokafka, which is not installed where the broker runs") from None
        self._kafka: Any = aiokafka
        self._errors: Any = aiokafka.errors
        self._context = context
        self._options = _checked(options)
        self._topic = str(self._options["topic"])
        self._bytes_max = int(self._options["batch_bytes_max"])
        self._producer: Any = None

    async def open(self) -> Accepted | None:
        self._producer = producer = self._kafka.AIOKafkaProducer(**self._settings())
        try:
            await producer.start()
            self._partitions = sorted(await producer.partitions_for(self._topic))
        except (self._errors.KafkaError, OSError) as error:
            raise self._said(error) from None
        self._partition_of = self._kafka.partitioner.DefaultPartitioner()
        return None

    async def deliver(self, batch: Batch) -> Outcome:
        if self._producer is None:
            raise Unavailable("the connection to Kafka is closed")
        by_partition: dict[int, list[_Record]] = {}
        for index, message in enumerate(batch.messages):
            record = _record(index, message, self._context.store)
            by_partition.setdefault(self._partition_of(record.key, self._partitions, self._partitions), []).append(record)
        # Each of them to its end: what one of them has under way is not left to itself because another one has failed.
        ended = await asyncio.gather(*[self._send(to, records) for to, records in by_partition.items()], return_exceptions=True)
        refused: list[Refusal] = []
        for each in ended:
            if isinstance(each, BaseException):
                raise each
            refused += each
        return Outcome(len(batch.messages), tuple(sorted(refused, key=lambda refusal: refusal.index)))

    async def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is None:
            return
        ending = asyncio.ensure_future(producer.stop())
        _ending.add(ending)
        ending.add_done_callback(_ended)
        await asyncio.wait([ending], timeout=CLOSE_S)

    # ---------------------------------------------------------------- one partition
    async def _send(self, partition: int, records: list[_Record]) -> list[Refusal]:
        """In order.  What is refused for good.  Raises Unavailable, Misconfigured."""
        refused: list[Refusal] = []
        while records:
            if records[0].size > self._bytes_max:
                refused.append(Refusal(records[0].place, f"it is larger than {self._bytes_max} bytes, which is batch_bytes_max"))
                records = records[1:]
                continue
            built, some = self._built(records)
            try:
                await (await self._producer.send_batch(built, self._topic, partition=partition))
            except self._errors.MessageSizeTooLargeError:
                if len(some) > 1:
                    # Which one it is, Kafka does not say.
                    half = len(some) // 2
                    refused += await self._send(partition, some[:half])
                    refused += await self._send(partition, some[half:])
                else:
                    refused.append(Refusal(some[0].place, f"Kafka's topic {self._topic} takes no message of that size"))
            except (self._errors.KafkaError, OSError) as error:
                raise self._said(error) from None
            records = records[len(some) :]
        return refused

    def _built(self, records: list[_Record]) -> tuple[Any, list[_Record]]:
        """A batch of Kafka, and those that it has room for, from the first on."""
        built = self._producer.create_batch()
        for count, record in enumerate(records):
            # The first one it takes at any size.
            if (
                record.size > self._bytes_max
                or built.append(timestamp=record.at_ms, key=record.key, value=record.value, headers=record.headers) is None
            ):
                return built, records[:count]
        return built, records

    # ---------------------------------------------------------------- Kafka's settings and errors
    def _settings(self) -> dict[str, Any]:
        options, context = self._options, self._context
        settings = {
            "bootstrap_servers": options["servers"],
            "client_id": f"holdfast-{context.bridge}-{context.lane}",
            "acks": "all",
            "request_timeout_ms": options["timeout_ms"],
            "max_batch_size": self._bytes_max,
            "max_request_size": self._bytes_max + 65_536,
            "compression_type": options["compression"] or None,
            "security_protocol": options["security"],
        }
        if options["security"] in ("SSL", "SASL_SSL"):
            settings["ssl_context"] = ssl.create_default_context(cafile=options["ca"] or None)
        if options["security"].startswith("SASL"):
            settings["sasl_mechanism"] = options["sasl_mechanism"]
            settings["sasl_plain_username"] = options["user"]
            settings["sasl_plain_password"] = _password(self._context.data_dir / options["password_file"])
        return settings

    def _said(self, error: Exception) -> Exception:
        errors = self._errors
        words = " ".join(str(error).split()) or type(error).__name__
        somebody = (
            errors.AuthenticationFailedError, errors.SaslAuthenticationFailed, errors.UnsupportedSaslMechanismError,
            errors.ClusterAuthorizationFailedError, errors.TopicAuthorizationFailedError, errors.InvalidTopicError,
            errors.UnknownTopicOrPartitionError, errors.UnsupportedVersionError,
        )  # fmt: skip
        if isinstance(error, somebody):
            return Misconfigured(f"Kafka refuses topic {self._topic}: {words}")
        return Unavailable(f"Kafka at {self._options['servers']} does not take messages: {words}")


def _checked(options: Mapping[str, Any]) -> dict[str, Any]:
    unknown = sorted(options.keys() - OPTIONS.keys())
    if unknown:
        raise Misconfigured(f"plugin.options has {', '.join(unknown)}; it takes {', '.join(OPTIONS)}")
    found = {**OPTIONS, **options}
    for name, default in OPTIONS.items():
        if not isinstance(found[name], type(default)):
            raise Misconfigured(
                f"{name} in plugin.options is {found[name]!r}; {'a number' if isinstance(default, int) else 'text'} is wanted"
            )
    for name in ("servers", "topic"):
        if not found[name]:
            raise Misconfigured(f"plugin.options has no {name}")
    if not _TOPIC.fullmatch(found["topic"]):
        raise Misconfigured(f"topic in plugin.options is {found['topic']!r}; letters, digits, . _ and - are wanted")
    return found


def _password(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        raise Misconfigured(f"the password is not in {path}") from None


def _record(index: int, message: Message, store: str) -> _Record:
    headers = [
        ("holdfast-id", f"{store}/{message.shard}/{message.position}".encode()),
        ("mqtt-topic", message.topic.encode()),
        ("mqtt-publisher", message.publisher.encode()),
        *((name, value.encode()) for name, value in message.user_properties),
    ]
    if message.content_type:
        headers.append(("content-type", message.content_type.encode()))
    return _Record(index, (message.key or message.topic).encode(), message.payload, message.published_at_ms, headers)


def _ended(ending: asyncio.Future[Any]) -> None:
    _ending.discard(ending)
    if not ending.cancelled():
        # Nobody else asks for it.
        ending.exception()
