"""Every setting does something."""

from __future__ import annotations

import ast
import re

from config.settings import all_settings
from tests.house.tree import ROOT, shipped, tree

# They take one value until replication exists, so there is nothing to read.
ONE_VALUE = {
    "durable_storage.messages.backend",
    "durable_storage.messages.n_sites",
    "durable_storage.messages.replication_factor",
}

# Declared, and not yet wired to what they should change. Wiring or removing one takes it off this list; nothing may be added.
UNREAD = {
    "node.name",
    "gateway.topic_levels_max",
    "gateway.link_frames_max",
    "mqtt.max_awaiting_rel",
    "mqtt.await_rel_timeout",
    "mqtt.upgrade_qos",
    "mqtt.retain_available",
    "durable_sessions.enable",
    "durable_sessions.idle_poll_interval",
    "durable_sessions.renew_streams_interval",
    "durable_sessions.session_gc_interval",
    "durable_storage.messages.generation_length",
    "durable_storage.messages.local_write_buffer.flush_interval",
    "durable_storage.messages.layout.topic_index_bytes",
}

# Names so common that only the whole expression tells.
SPELLED = {
    "node.name": r"\bnode\.name\b",
    "listeners.tcp.enable": r"\b(tcp|listener|config)\.enable\b",
    "durable_sessions.enable": r"\bdurable_sessions\.enable\b",
    "gateway.count": r"\bgateway\.count\b",
    "log.level": r"\blog\.level\b",
    "log.format": r"\blog\.format\b",
    "durable_storage.messages.layout.type": r"\blayout\.type\b",
}


def test_every_setting_is_read_by_the_broker() -> None:
    """A setting that nothing reads would be a promise in docs/configuration.md that nobody keeps."""
    readers = [name for name in shipped() if name.parts[0] not in ("config", "benchmarks")]
    read = {node.attr for name in readers for node in ast.walk(tree(name)) if isinstance(node, ast.Attribute)}
    text = "\n".join((ROOT / name).read_text() for name in readers)
    # Two limits that count together are read through the property that combines them.
    through = {"generation_length": "roll_after", "connect_bytes_max": "connect_limit", "session_expiry_interval": "session_expiry_3_1_1"}

    def is_read(key: str) -> bool:
        name = key.rpartition(".")[2]
        if key in SPELLED:
            return re.search(SPELLED[key], text) is not None
        return through.get(name, name) in read

    assert {key for key in all_settings() if key not in ONE_VALUE and not is_read(key)} == UNREAD
