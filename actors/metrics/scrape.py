"""All files of all processes as one answer, in the text form of Prometheus.

The files of a process that has died stay: what it had counted is added to what its successor counts. Its gauges go. When many have died,
what they had is folded into one file, which names the files it stands for: whoever is killed between putting that into its place and taking
those away has told nothing twice.

Holds: one Scrape at a time in a run directory (its files are the admin process's); a counter is never less than at the scrape before.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Final

import structlog
from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.mmap_dict import MmapedDict, mmap_key
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from actors.metrics.catalogue import BY_FAMILY
from actors.metrics.of_node import Value, of_node
from actors.metrics.sheet import DIRECTORY, PREFIXES, make_room, process_of
from actors.processes import alive
from actors.topology import Topology

log = structlog.get_logger(__name__)

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
FOLD_ABOVE: Final = 32
"""So many files of the dead, of one kind, are read one by one."""
_FOLDED: Final = "folded"
_STANDS_FOR: Final = "holdfast_stands_for"
_NAMED: Final = ("counter", "histogram")
_WITHOUT_TOTAL = re.compile(rb"^(# (?:HELP|TYPE) emqx_\w+)_total ", re.MULTILINE)
"""What prometheus_client writes for every counter, and EMQX does not."""


class Scrape(Collector):
    def __init__(self, topology: Topology, more: Callable[[], Iterator[Value]] = lambda: iter(())) -> None:
        """more: what only the process knows that answers."""
        self._topology = topology
        self._more = more
        self._directory = topology.run_dir / DIRECTORY
        self._lock = threading.Lock()

    def text(self) -> bytes:
        """For a thread. Raises OSError."""
        with self._lock:
            return _WITHOUT_TOTAL.sub(rb"\1 ", generate_latest(self))

    def families(self) -> list[Family]:
        """The same as they are, for who reckons with them. For a thread. Raises OSError."""
        with self._lock:
            return list(self.collect())

    def collect(self) -> Iterator[Family]:
        """Every metric there is, also those of which nobody has told anything."""
        found: dict[str, Family] = {family.name: family for family in MultiProcessCollector.merge(self._files())}
        of_processes = {name: [sample.value for sample in family.samples] for name, family in found.items() if family.type == "gauge"}
        for metric, labels, value in chain(of_node(self._topology, of_processes), self._more()):
            found.setdefault(metric.family, Family(metric.family, "", metric.kind)).add_sample(*_sample((metric, labels, value)))
        for name, metric in BY_FAMILY.items():
            family = found.get(name) or Family(name, "", metric.kind)
            family.documentation = metric.help
            yield family

    # ------------------------------------------------------------------ files

    def _files(self) -> list[str]:
        """Those to read, after folding and taking away what is not needed."""
        chosen: list[Path] = []
        for path in sorted(self._directory.glob(f"{PREFIXES['gauge']}_*.db")):
            if _lives(path, PREFIXES["gauge"]):
                chosen.append(path)
            else:
                path.unlink(missing_ok=True)
        for kind in _NAMED:
            folded = self._directory / f"{kind}_{_FOLDED}.db"
            stood_for = _stood_for(folded)
            paths = [path for path in sorted(self._directory.glob(f"{kind}_*.db")) if path != folded]
            for path in [path for path in paths if path.name in stood_for]:
                paths.remove(path)
                path.unlink(missing_ok=True)
            dead = [path for path in paths if not _lives(path, kind)]
            if len(dead) > FOLD_ABOVE:
                try:
                    fold(folded, dead)
                    paths = [path for path in paths if path not in dead]
                except OSError as error:
                    # A full disk: they are read one by one until there is room.
                    log.warning("metrics.not_folded", cause=str(error))
            chosen += [*paths, *([folded] if folded.exists() else [])]
        return [str(path) for path in chosen]


def fold(folded: Path, dead: list[Path]) -> None:
    """Add up what these have, and what is folded already. Raises OSError: then nothing has changed."""
    totals: dict[str, float] = {}
    for path in [*([folded] if folded.exists() else []), *dead]:
        for key, value, _, _ in MmapedDict.read_all_values_from_file(str(path)):
            if json.loads(key)[0] != _STANDS_FOR:
                totals[key] = totals.get(key, 0.0) + value
    for path in dead:
        totals[mmap_key(_STANDS_FOR, _STANDS_FOR, ["file"], [path.name], "")] = 1
    beside = folded.with_suffix(".part")
    beside.unlink(missing_ok=True)
    make_room(beside, 4096 + sum([len(key.encode()) + 32 for key in totals]))
    file = MmapedDict(str(beside))
    for key, value in totals.items():
        file.write_value(key, value, 0.0)
    file.close()
    beside.replace(folded)
    for path in dead:
        path.unlink(missing_ok=True)


def _stood_for(folded: Path) -> set[str]:
    if not folded.exists():
        return set()
    keys = [json.loads(key) for key, _, _, _ in MmapedDict.read_all_values_from_file(str(folded))]
    return {labels["file"] for family, _, labels, _ in keys if family == _STANDS_FOR}


def _lives(path: Path, prefix: str) -> bool:
    """Whether the process whose file it is does."""
    try:
        return alive(process_of(path.stem.removeprefix(f"{prefix}_")))
    except ValueError:
        return False


def _sample(value: Value) -> tuple[str, dict[str, str], float]:
    metric, labels, number = value
    return metric.name, dict(zip(metric.labels, labels, strict=True)), number
