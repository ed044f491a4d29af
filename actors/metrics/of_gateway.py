"""What a gateway says of itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Final

from actors.metrics.latency import Latency
from actors.metrics.names import Metric, counters, gauges
from sessions.frames import Deliver
from shards.frames import Entry, Publish

if TYPE_CHECKING:
    from actors.metrics.sheet import Sheet

_GATEWAY = ("gateway",)
COUNTERS: Final = counters("holdfast_gateway", "gateway", {
    "connections_accepted": "Connections that came in.",
    "connections_refused": "Connections that were refused at CONNECT.",
    "connections_moved": "Times that a connection stayed open while its session went on at another site.",
    "connections_superseded": "Connections that ended because their client has a newer one.",
    "connections_timed_out": "Connections that were silent for too long, or did not begin in time.",
    "protocol_errors": "Connections that ended because their client broke the protocol.",
    "connects_received": "CONNECT packets.",
    "publishes_received": "PUBLISH packets from clients.",
    "publish_bytes_received": "Bytes of their payloads and properties.",
    "publish_bytes_sent": "Bytes of payloads and properties of PUBLISH packets to clients.",
    "others_received": "Packets from clients that are no PUBLISH.",
    "bytes_received": "Bytes from clients.",
    "bytes_sent": "Bytes to clients.",
    "others_sent": "Packets to clients that are no PUBLISH.",
    "pauses_rate": "Times that a client was read more slowly, because it published faster than its listener takes it.",
    "publishes_refused_quota": "Messages refused with 0x97: no room, or a bound of the client.",
    "publishes_refused_topic": "Messages refused for their topic name.",
    "publishes_refused_format": "Messages refused because they were said to be text and are not.",
    "publishes_denied": "Messages that the rules have refused.",
    "wills_denied": "Wills that the rules have refused.",
    "subscriptions_denied": "Filters of SUBSCRIBE that the rules have refused.",
    "rights_asked": "Questions to a plugin that decides.",
    "rights_unanswered": "Of those, the ones it did not answer in time, or was too busy for.",
    "publishes_repeated": "QoS 2 messages that came again and were known.",
    "publishes_await_rel_timed_out": "QoS 2 messages whose PUBREL did not come in time.",
    "publishes_not_stored": "Messages that no durable subscription wanted.",
    "live_delivered": "Messages sent to subscribers whose session ends with its connection.",
    "live_dropped_queue_full": "Messages dropped because the queue of such a subscriber was full (`mqtt.max_mqueue_len`).",
    "live_dropped_too_large": "Messages larger than such a subscriber takes.",
    "live_dropped_expired": "Messages whose Message Expiry Interval was over before they could be sent.",
    "live_dropped_slow": "QoS 0 messages for subscribers that do not read what was written to them.",
    "durable_delivered": "Messages sent to connections of durable sessions, repeated ones too.",
    "durable_too_large": "Messages larger than the client of a durable session takes.",
    "durable_expired": "Messages of durable sessions whose Message Expiry Interval was over.",
    "forwards_sent": "Messages handed to other gateways for their live subscribers.",
    "forwards_received": "Messages that came from other gateways.",
    "forwards_stale": "Of those, the ones of connections that had been replaced.",
    "shared_handed_on": "Messages of shared groups that went to another member, because theirs had gone.",
    "shared_lost": "Messages of shared groups for which there was no other member.",
    "retained_delivered": "Retained messages sent to new subscribers.",
    "retained_pages_failed": "Pages of retained messages that a shard did not give.",
    "deliveries_suppressed": "Messages not sent, because the rules do not let their takers read them.",
    "subacks_unconfirmed": "SUBACKs sent although another gateway had not confirmed the filters in time.",
    "accepts_exhausted": "Times that no connection could be accepted for lack of descriptors.",
})  # fmt: skip
GAUGES: Final = gauges("holdfast_gateway", "gateway", {
    "connections": "Connections that are open, in whatever state.",
    "shards_away": "Shards to which there is no link.",
    "frames_unanswered": "Frames that shards have not answered.",
})  # fmt: skip
PUBLISH: Final = Metric(
    "holdfast_publish_seconds", "histogram", _GATEWAY,
    "From a frame with PUBLISH packets to a shard until its answer, by which they are acknowledged; each frame once.",
)  # fmt: skip
DELIVERY: Final = Metric(
    "holdfast_delivery_seconds", "histogram", _GATEWAY,
    "How old a message of a durable session is when its gateway sends it: the first of each frame. Some waited for their client.",
)  # fmt: skip
METRICS: Final = (*COUNTERS.values(), *GAUGES.values(), PUBLISH, DELIVERY)


class GatewayFigures:
    """Followed by the shell: a frame at a time, never a message."""

    def __init__(self, gateway: int, clock: Callable[[], float] = monotonic) -> None:
        self._gateway = str(gateway)
        self._clock = clock
        self.publish, self.delivery = Latency(), Latency()
        self._asked: dict[tuple[int, int], float] = {}
        """Frames with publishes that are not answered, by shard and number; bounded as those are."""

    def asked(self, shard: int, id: int, entries: list[Entry]) -> None:
        for entry in entries:
            if type(entry) is Publish:
                self._asked[shard, id] = self._clock()
                return

    def answered(self, shard: int, id: int) -> None:
        began = self._asked.pop((shard, id), None)
        if began is not None:
            self.publish.note(self._clock() - began)

    def delivered(self, frame: Deliver, wall_ms: int) -> None:
        self.delivery.note(max(0, wall_ms - frame.messages[0][2]) / 1000)

    def tell(self, sheet: Sheet, counted: Mapping[str, int]) -> None:
        """counted: actors.gateway.GatewayServer.counters."""
        for name, metric in COUNTERS.items():
            sheet.count(metric, counted[name], self._gateway)
        for name, metric in GAUGES.items():
            sheet.level(metric, counted[name], self._gateway)
        sheet.spread(PUBLISH, self.publish, self._gateway)
        sheet.spread(DELIVERY, self.delivery, self._gateway)
