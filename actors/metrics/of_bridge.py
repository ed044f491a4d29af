"""What the bridge process says of each bridge."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from actors.metrics.names import counters, gauges

if TYPE_CHECKING:
    from actors.bridge.inward import InwardRunner
    from actors.bridge.runner import Runner
    from actors.metrics.sheet import Sheet

COUNTERS: Final = counters("holdfast_bridge", "bridge", {
    "received": "Messages that the bridge has taken from the store, once each while its process lives; inwards, from the other broker.",
    "delivered": "Messages that its target has accepted; inwards, that this broker has.",
    "delivered_bytes": "Bytes of their payloads.",
    "batches": "Batches that were handed to the target; inwards none.",
    "left_out": "Messages that `transform.where` has left out, or that were in this store, or at that broker, before.",
    "retried": "Messages that were handed to the target once more, after a failure; inwards, that the other broker sent once more.",
    "repeated": "Messages that came again after a crash and that the target knew that it had; inwards none.",
    "refused": "Messages that the target, inwards this broker, refused for good, or that could not be transformed.",
    "dead_letters": "Of those, the ones that are stored as dead letters.",
    "dead_letters_dropped": "Of those, the ones that were dead letters already, or inwards of QoS 0, and are nowhere now.",
    "failures": "Times that the target could not be reached, or did not take a batch; inwards, that the connections ended.",
})  # fmt: skip
GAUGES: Final = gauges("holdfast_bridge", "bridge", {
    "online": "1: it has its session at this broker; inwards, at both.",
    "breaker_open": "1: there were `breaker_after` failures in a row; one connection alone tries.",
    "failures_in_a_row": "Failures since the target, inwards this broker, has accepted something.",
    "inflight": "Messages in the memory of the bridge.",
    "inflight_bytes": "Bytes of those.",
    "connections": "Connections to the target, or to the other broker.",
})  # fmt: skip
METRICS: Final = (*COUNTERS.values(), *GAUGES.values())


def tell(sheet: Sheet, name: str, runner: Runner | InwardRunner) -> None:
    counted = asdict(runner.counters)
    for key, metric in COUNTERS.items():
        sheet.count(metric, counted[key], name)
    status = runner.status()
    sheet.level(GAUGES["online"], status.online, name)
    sheet.level(GAUGES["breaker_open"], status.breaker != "closed", name)
    sheet.level(GAUGES["failures_in_a_row"], status.failures, name)
    sheet.level(GAUGES["inflight"], status.inflight, name)
    sheet.level(GAUGES["inflight_bytes"], status.inflight_bytes, name)
    sheet.level(GAUGES["connections"], status.connections, name)


def forget(sheet: Sheet, name: str) -> None:
    """A bridge that does not run any more: its gauges say so."""
    for metric in GAUGES.values():
        sheet.level(metric, 0, name)
