"""Settings of what the protocol leaves to the broker: how long, how many, how large.

Only declares, as `config.schema` does, of which this is the section `mqtt`.
"""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from config.fields import Flag, Section, Whole, conflict, setting
from config.values import INFINITY, Count, Duration, Size

SESSION_EXPIRY_NEVER_MS = 0xFFFF_FFFF * 1000
"""What a client asks for with 0xFFFFFFFF: its session never expires by itself."""


class Mqtt(Section):
    session_expiry_interval: Duration = setting(
        Duration.parse("7d"),
        "How long the session of an MQTT 3.1.1 client with clean session off outlives its connection; that version cannot say it "
        "itself. Never longer than `session_expiry_max`. EMQX: 2 h. Ours is the retention period: a session is worth keeping as "
        "long as the messages for it are.",
        ge=0,
        le=SESSION_EXPIRY_NEVER_MS,
        effect="at once",
    )
    session_expiry_max: Duration = setting(
        Duration(INFINITY),
        "Longest Session Expiry Interval that an MQTT 5 client gets; if it asks for more, CONNACK tells it this instead. Unlimited "
        "by default: an offline session costs some rows, not memory.",
        ge=0,
        effect="at once",
    )
    max_inflight: Whole = setting(
        1024,
        "Messages of QoS 1 and 2 that may be under way to a client, or from it (this is the Receive Maximum we announce). A client "
        "may set its own lower. EMQX: 32; a window that small caps a client at 32 messages per round trip of an fsync.",
        unit="messages",
        ge=1,
        le=65535,
        effect="at once",
    )
    max_awaiting_rel: Count = setting(
        Count(65535),
        "QoS 2 messages of one client that wait for its PUBREL; the next one is refused with 0x93. EMQX: 100. All packet "
        "identifiers by default: an MQTT 3.1.1 client cannot be told of a lower limit, and refusing means disconnecting it.",
        unit="messages",
        ge=1,
        effect="at once",
    )
    await_rel_timeout: Duration = setting(
        Duration(INFINITY),
        "How long a QoS 2 message waits for its PUBREL. After that its packet identifier is free again, and whoever repeats the "
        "message then has published it twice. EMQX: 300 s. Unlimited by default: a client that comes back after a week still has "
        "its message delivered once.",
        ge=1000,
    )
    max_subscriptions: Count = setting(
        Count(INFINITY),
        "Subscriptions of one session; further ones get 0x97.",
        unit="subscriptions",
        ge=1,
        effect="at once",
    )
    filters_per_packet_max: Whole = setting(
        1024,
        "Topic filters that one SUBSCRIBE or UNSUBSCRIBE may name; a packet with more ends its connection with 0x97. All filters of a "
        "packet are taken in one go, and everybody else on that gateway waits meanwhile: 8 ms for 1,024 (measured).",
        unit="filters",
        ge=1,
        le=100_000,
        effect="at once",
    )
    user_properties_max: Whole = setting(
        256,
        "User properties of one packet; a packet with more ends its connection with 0x97. They are kept and handed on in order, so "
        "each costs memory with every subscriber.",
        unit="properties",
        ge=0,
        le=65_535,
        effect="at once",
    )
    upgrade_qos: Flag = setting(
        False,
        "Send each message at the QoS that its subscription was granted, also where it was published at a lower one. MQTT wants the lower "
        "of both. Counts for subscriptions made from then on, as long as they last. For durable sessions it raises what is stored, so "
        "messages of QoS 0 only with `durable_storage.messages.store_qos0`; the others come at QoS 0.",
        effect="at once",
    )
    max_mqueue_len: Count = setting(
        Count(1000),
        "Messages of QoS 1 and 2 that wait in memory for one session that is not durable: for room in its window, or until its client is "
        "back. When it is full the oldest is dropped. QoS 0 never waits: it is sent at once, or dropped where the client does not read. "
        "Durable sessions have no such queue, their messages are in the store.",
        unit="messages",
        ge=1,
        effect="at once",
    )
    max_mqueue_bytes: Size = setting(
        Size.parse("8MiB"),
        "Bytes of that queue. EMQX has no such limit, and a thousand messages may be a gigabyte.",
        ge=2**10,
        effect="at once",
    )
    memory_bytes_max: Size = setting(
        Size.parse("256MiB"),
        "Bytes that all sessions of one session actor hold that outlive their connection and are not durable, waiting and under way, "
        "counted once for each session. When it is reached, a message that would have to wait for one of them is dropped; what "
        "waits already stays, so no session pays for another that is away for too long.",
        ge=2**20,
    )
    keepalive_max: Duration = setting(
        Duration(INFINITY),
        "Longest keep-alive. An MQTT 5 client that asks for more, or for none, is told this value (Server Keep Alive); 3.1.1 has no "
        "way to be told and keeps its own.",
        ge=1000,
        effect="at once",
    )
    retain_available: Flag = setting(
        True, "Keep retained messages. Without, CONNACK says so and a publish with the retain flag is refused with 0x9A."
    )
    topic_alias_max: Whole = setting(
        100,
        "Topic aliases that a client may define on its connection. Each holds a topic name in memory; 0 allows none. EMQX: 65535.",
        unit="aliases",
        ge=0,
        le=65535,
    )
    topic_alias_max_out: Whole = setting(
        100,
        "Topic aliases that we define for a client, within the Topic Alias Maximum that it announces: the first topics that it gets "
        "have one each. 0: none.",
        unit="aliases",
        ge=0,
        le=65_535,
        effect="at once",
    )
    payload_format_check: Flag = setting(
        False,
        "Refuse with 0x99 a message whose payload is said to be UTF-8 and is not. Off: looking at each payload costs.",
        effect="at once",
    )
    server_reference: str = setting(
        "",
        'Where clients shall go when the broker is stopped: DISCONNECT says 0x9C and this text, such as "other.example.org:1883". Empty: '
        "it says 0x8B.",
        pattern=r"^[!-~]{0,1024}( [!-~]{1,1024})*$",
        allowed="one address or several with a blank between them",
        effect="at once",
    )
    delayed_publish: Flag = setting(
        True, "Take `$delayed/SECONDS/topic` for a message to `topic`, so many seconds later.", effect="at once"
    )
    delayed_max: Duration = setting(
        Duration.parse("7d"), "The longest delay; a message that wants more is refused.", ge=1000, le=42_949_672_000, effect="at once"
    )
    delayed_messages_max: Whole = setting(
        100_000,
        "Delayed messages that one shard holds; further ones are refused with 0x97 (3.1.1: the connection is closed).",
        unit="messages",
        ge=0,
        le=100_000_000,
        effect="at once",
    )
    sys_interval: Duration = setting(
        Duration.parse("10s"),
        "How often `$SYS` topics are published. From 1s to 1h; infinity: never.",
        ge=1000,
        allowed='a duration from 1s to 1h, or "infinity"',
        effect="at once",
    )
    shared_subscription: Flag = setting(
        True,
        "Shared subscriptions: each message that matches `$share/group/filter` goes to one member of the group, MQTT 3.1.1 included. "
        "Durable sessions and others with the same filter are two groups. Of durable ones the group is stored, and what a member leaves "
        "unacknowledged goes to another one, whatever crashes (`durable_sessions.groups`). Of others members take turns over all "
        "gateways, and a gateway that dies loses what its members had.",
    )

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        if not self.sys_interval.is_infinite and self.sys_interval > 3_600_000:
            raise conflict("sys_interval", 'a duration from 1s to 1h, or "infinity"')
        return self

    @property
    def session_expiry_3_1_1(self) -> Duration:
        """Expiry of an MQTT 3.1.1 session with clean session off."""
        return min(self.session_expiry_interval, self.session_expiry_max)
