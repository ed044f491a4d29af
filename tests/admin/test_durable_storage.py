"""Sites and replicas in the form of EMQX, and settings without secrets."""

from __future__ import annotations

import json

from actors.admin.durable_storage import of_shard, of_site
from actors.admin.node import HIDDEN, without_secrets
from actors.inquiry.sites import Replica, ShardInfo, SiteInfo, Sites
from config.dump import dump_json
from config.load import load

A, B = "A" * 16, "B" * 16


def test_shards_and_sites_say_what_moves() -> None:
    """As joining and leaving, and only where something does."""
    moving = ShardInfo("messages", 0, (Replica(A, True), Replica(B, False)), (f"+{B}", f"-{A}"))
    still = ShardInfo("messages", 1, (Replica(A, True),))
    assert of_shard(moving) == {
        "id": "0",
        "replicas": [{"site": A, "status": "up"}, {"site": B, "status": "down"}],
        "transitions": [{"site": B, "transition": "joining"}, {"site": A, "transition": "leaving"}],
    }
    known = Sites(A, (SiteInfo(A, "n@a", True), SiteInfo(B, "n@b", False)), (moving, still))
    assert of_site(known, A) == {
        "node": "n@a", "up": True, "shards": [
            {"storage": "messages", "id": "0", "status": "up", "transition": "leaving"},
            {"storage": "messages", "id": "1", "status": "up"},
        ],
    }  # fmt: skip


def test_settings_are_told_without_their_secrets() -> None:
    """Of every listener too; an empty place is empty."""
    of_listener = ("listeners.x.bind=127.0.0.1:1", "listeners.x.type=tls", "listeners.x.tls.cert=/c", "listeners.x.tls.key=/k")
    config = load(sets=("access.jwt.keys=file:///etc/k", *of_listener, "listeners.x.tls.key_password=env:P"), environ={})
    told = without_secrets(config, json.loads(dump_json(config)))
    assert told["access"]["jwt"]["keys"] == HIDDEN and "env:P" not in json.dumps(told) and "/etc/k" not in json.dumps(told)
    assert told["mqtt"]["max_inflight"] == config.mqtt.max_inflight
