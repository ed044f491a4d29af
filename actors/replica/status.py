"""What a replica says of itself, for the site process and for people: a small file in the run directory, at changes and once a second.

replica-N.json    shard, rid, role, epoch, leader, replicas, isr, elr, target, trans, last, commit, applied, behind,
                  last_epoch
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import structlog

from actors.topology import write_whole
from shards.replication.replica import Replica

EVERY_S = 1.0

log = structlog.get_logger(__name__)


class Status:
    def __init__(self, run_dir: Path, shard: int) -> None:
        self._path = run_dir / f"replica-{shard}.json"
        self._shard = shard
        self._leading: tuple[Any, ...] = ()
        self._text = ""
        self._written_s = 0.0

    def tell(self, replica: Replica) -> None:
        """Who leads is told at once; how far it has come, once a second."""
        leading = (replica.rid, replica.role, replica.serving, replica.epoch, replica.leader, replica.cfg)
        now_s = time.monotonic()
        if leading == self._leading and now_s - self._written_s < EVERY_S:
            return
        self._leading, self._written_s = leading, now_s
        text = json.dumps(row(self._shard, replica))
        if text == self._text:
            return
        try:
            write_whole(self._path, text)
        except OSError as error:
            log.warning("replica.not_told", shard=self._shard, cause=str(error))
        else:
            self._text = text

    def forget(self) -> None:
        self._path.unlink(missing_ok=True)


def row(shard: int, replica: Replica) -> dict[str, Any]:
    cfg = replica.cfg
    return {
        "shard": shard, "rid": replica.rid, "role": replica.role, "epoch": replica.epoch, "leader": replica.leader or "",
        "replicas": [] if cfg is None else sorted(cfg.replicas),
        "isr": [] if cfg is None else sorted(cfg.isr),
        "elr": [] if cfg is None else sorted(cfg.elr),
        "target": None if cfg is None or cfg.target is None else list(cfg.target),
        "trans": None if cfg is None or cfg.trans is None else [cfg.trans.op, cfg.trans.site],
        "last": replica.last, "commit": replica.commit, "applied": replica.applied, "behind": replica.behind,
        "last_epoch": replica.last_epoch,
    }  # fmt: skip
