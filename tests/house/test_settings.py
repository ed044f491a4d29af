"""Every setting does something."""

from __future__ import annotations

import ast
import re

from config.settings import all_settings
from config.unbuilt import is_unbuilt
from tests.house.tree import ROOT, shipped, tree

# Names so common that only the whole expression tells.
SPELLED = {
    "listeners.tcp.enable": r"\b(tcp|listener|config)\.enable\b",
    "durable_sessions.enable": r"\bdurable_sessions\.enable\b",
    "gateway.count": r"\bgateway_count\(",
    "log.level": r"\blog\.level\b",
    "log.format": r"\blog\.format\b",
    "durable_storage.messages.layout.type": r"\bmessages\.layout_type\b",
}


def test_every_setting_is_read_by_the_broker() -> None:
    """A setting that nothing reads would be a promise in docs/configuration.md that nobody keeps."""
    readers = [name for name in shipped() if name.parts[0] not in ("config", "benchmarks")]
    read = {node.attr for name in readers for node in ast.walk(tree(name)) if isinstance(node, ast.Attribute)}
    text = "\n".join((ROOT / name).read_text() for name in readers)
    # Two limits that count together are read through the property that combines them.
    through = {"connect_bytes_max": "connect_limit", "session_expiry_interval": "session_expiry_3_1_1"}

    def is_read(key: str) -> bool:
        name = key.rpartition(".")[2]
        if key in SPELLED:
            return re.search(SPELLED[key], text) is not None
        return through.get(name, name) in read

    assert {key for key in all_settings() if not is_unbuilt(key) and not is_read(key)} == set()
