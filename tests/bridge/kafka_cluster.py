"""Kafka for tests: the cluster of one broker that librdkafka has in it for its own tests, which speaks Kafka's protocol on a port.

Not a broker that people run: of those none can be had from the registries that this project installs from.  It is another hand's work than
the client under test, keeps what it is given, and goes down and comes up when it is told to.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import confluent_kafka

TOPIC = "mqtt"
_PRODUCER = 0
_BROKER = 1
_PRODUCE = 0


class KafkaCluster:
    """made -> (down -> up) -> ended."""

    def __init__(self, partitions: int = 1) -> None:
        (path,) = (Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs").glob("librdkafka-*.so*")
        self._library = library = ctypes.CDLL(str(path))
        for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
            getattr(library, name).restype = ctypes.c_void_p
        library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
        said = ctypes.create_string_buffer(512)
        configuration = ctypes.c_void_p(library.rd_kafka_conf_new())
        self._client = ctypes.c_void_p(library.rd_kafka_new(_PRODUCER, configuration, said, ctypes.c_size_t(512)))
        assert self._client.value, said.value
        self._cluster = ctypes.c_void_p(library.rd_kafka_mock_cluster_new(self._client, 1))
        self.servers: str = library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()
        self._told(library.rd_kafka_mock_topic_create(self._cluster, TOPIC.encode(), partitions, 1))

    def down(self) -> None:
        self._told(self._library.rd_kafka_mock_broker_set_down(self._cluster, _BROKER))

    def up(self) -> None:
        self._told(self._library.rd_kafka_mock_broker_set_up(self._cluster, _BROKER))

    def fail(self, code: int) -> None:
        """The topic answers so, from now on; 0: as ever."""
        self._library.rd_kafka_mock_topic_set_error(self._cluster, TOPIC.encode(), code)

    def fail_next(self, code: int, times: int) -> None:
        """So are the next requests to store something answered."""
        self._library.rd_kafka_mock_push_request_errors_array(
            self._cluster, ctypes.c_int16(_PRODUCE), ctypes.c_size_t(times), (ctypes.c_int * times)(*[code] * times)
        )

    def end(self) -> None:
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._client)

    @staticmethod
    def _told(code: int) -> None:
        assert code == 0, f"librdkafka says {code}"
