"""The example of a target of one's own, Kafka: what tests/bridge/test_target_contract.py does not ask of it."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bridge.port import Misconfigured
from deploy.bridges.kafka_target import OPTIONS, KafkaTarget
from tests.bridge.batches import batch, context
from tests.bridge.kafka_peer import KafkaPeer
from tests.bridge.peers import what

FORBIDDEN, TOO_LARGE = 29, 10
"""Numbers of Kafka's protocol: TOPIC_AUTHORIZATION_FAILED, MESSAGE_TOO_LARGE."""
GOOD = {"servers": "127.0.0.1:9", "topic": "mqtt"}


class Three(KafkaPeer):
    partitions = 3


@pytest.fixture
async def kafka(tmp_path: Path) -> AsyncIterator[Three]:
    made = Three(tmp_path)
    await made.start()
    yield made
    await made.end()


@pytest.mark.slow
@pytest.mark.needs("kafka")
async def test_what_has_one_key_lies_in_one_partition_in_its_order(kafka: Three) -> None:
    """And the record says what the message was, as clients of Kafka read it."""
    target = kafka.target()
    await target.open()
    sent = batch(range(1, 61))
    assert (await target.deliver(sent)).done == 60
    await target.close()
    assert sorted(await kafka.until(60)) == sorted(what(sent))
    for topic in ("plant/0", "plant/1", "plant/2"):
        records = [record for record in kafka.records if record.key == topic.encode()]
        assert len({record.partition for record in records}) == 1
        assert [record.value for record in records] == [each.payload for each in sent.messages if each.topic == topic]
    record = kafka.records[0]
    headers = {name: value.decode() for name, value in record.headers}
    assert headers["mqtt-topic"] == record.key.decode() and headers["mqtt-publisher"] == "sensor-ä"
    assert record.timestamp == 1_790_000_000_000 + int(record.value.split()[-1])


@pytest.mark.slow
@pytest.mark.needs("kafka")
async def test_a_topic_that_is_not_for_us_is_somebodys_business(kafka: Three) -> None:
    """Not tried as if it were away; neither when it is opened nor when it has been."""
    target = kafka.target()
    await target.open()
    kafka.cluster.fail_next(FORBIDDEN, 1)
    with pytest.raises(Misconfigured, match="Kafka refuses topic mqtt"):
        await target.deliver(batch([1]))
    await target.close()
    kafka.cluster.fail(FORBIDDEN)
    again = kafka.target()
    with pytest.raises(Misconfigured, match="Kafka refuses topic mqtt"):
        await again.open()
    await again.close()
    kafka.cluster.fail(0)


@pytest.mark.slow
@pytest.mark.needs("kafka")
async def test_records_that_kafka_finds_too_large_are_refused_and_no_others(kafka: Three) -> None:
    """Its topic may take less than we think: which one it was is found by halves."""
    target = kafka.target()
    await target.open()
    kafka.cluster.fail_next(TOO_LARGE, 3)
    one = batch([3, 6])
    # The two together, then each of them: the last answer is that of a broker that takes it.
    outcome = await target.deliver(one)
    await target.close()
    assert (outcome.done, [each.index for each in outcome.refused]) == (2, [0, 1])


@pytest.mark.needs("kafka")
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"servers": ""}, "plugin.options has no servers"),
        ({"topic": ""}, "plugin.options has no topic"),
        ({"server": "x"}, f"plugin.options has server; it takes {', '.join(OPTIONS)}"),
        ({"topic": "a b"}, "topic in plugin.options is 'a b'; letters, digits, . _ and - are wanted"),
        ({"timeout_ms": "1s"}, "timeout_ms in plugin.options is '1s'; a number is wanted"),
    ],
)
def test_options_that_cannot_be_are_one_sentence(tmp_path: Path, options: dict[str, object], sentence: str) -> None:
    """Which `holdfast bridge ls` shows."""
    with pytest.raises(Misconfigured) as refused:
        KafkaTarget({**GOOD, **options}, context(tmp_path))
    assert str(refused.value) == sentence


@pytest.mark.needs("kafka")
async def test_a_password_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    """Its file is sought in the data directory."""
    target = KafkaTarget({**GOOD, "security": "SASL_PLAINTEXT", "user": "u", "password_file": "secret"}, context(tmp_path))
    with pytest.raises(Misconfigured, match="the password is not in "):
        await target.open()


def test_without_the_client_library_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Holdfast itself needs nothing of Kafka."""
    monkeypatch.setitem(sys.modules, "aiokafka", None)
    with pytest.raises(Misconfigured, match="needs the package aiokafka, which is not installed"):
        KafkaTarget(GOOD, context(tmp_path))
