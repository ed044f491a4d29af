"""APPEND: messages of a writer, to the shards where their clients are at home, each taken once.

Keeps nothing: whether a block was taken is in a row of each shard, in the record of its messages (shards.writers). So whoever got no answer
sends the same block again, and a shard that has it says so, while the others take what they do not have yet.
"""

from __future__ import annotations

from typing import Any

from actors.links import FRAME_BYTES_MAX
from actors.reader import asked
from actors.reader.access import Holder
from actors.reader.shard_side import ShardSide
from holdfast_spark.protocol import Code, Frame, Kind, Malformed, Messages, Refused, decode_messages
from mqtt.reason import ProtocolError
from mqtt.topics import check_topic_name
from shards.frames import APPEND_FORBIDDEN, APPEND_FULL, APPEND_REPEATED, APPEND_SENSELESS, Append, Appended
from shards.slots import SlotTable

NUMBER_MAX = 1 << 62
_BYTES_MAX = FRAME_BYTES_MAX - (1 << 20)
"""Of what goes to one shard: it travels in one frame."""


def append(side: ShardSide, n_shards: int, holder: Holder, request: asked.Request, frame: Frame) -> dict[str, Any]:
    """Raises Refused, ShardAway."""
    writer = asked.text(request, "writer", 64)
    batch, block = asked.whole(request, "batch", 0, NUMBER_MAX), asked.whole(request, "block", 0, NUMBER_MAX)
    rows = asked.whole(request, "rows")
    if frame.kind != Kind.MESSAGES:
        raise asked.senseless(f"a frame of kind {frame.kind.name} came behind APPEND, and one of kind {Kind.MESSAGES.name} is wanted")
    try:
        messages = decode_messages(frame.body)
    except Malformed as error:
        raise asked.senseless(str(error)) from None
    if len(messages.topics) != rows:
        raise asked.senseless(f"rows is {rows}, and {len(messages.topics)} messages came")
    try:
        for topic in dict.fromkeys(messages.topics):
            check_topic_name(topic)
    except ProtocolError as error:
        raise asked.senseless(f"a topic is none: {error}") from None
    holder.check_topics(messages.topics, messages.flags)
    replies = side.ask(
        {shard: _part(writer, batch, block, messages, of, holder.identity) for shard, of in _homes(messages, n_shards).items()}
    )
    answers = {shard: reply for shard, reply in replies.items() if isinstance(reply, Appended)}
    for shard, reply in sorted(answers.items()):
        if reply.code == APPEND_FULL:
            found = f"shard {shard} takes no messages now: its disk or its quota is full, or it knows as many writers as it may"
            raise Refused(Code.FULL, found, {"shard": shard})
        if reply.code == APPEND_SENSELESS:
            raise asked.senseless(
                "one of the messages could not have been published by a client: its client id, topic, flags or properties"
            )
        assert reply.code != APPEND_FORBIDDEN, "a reader may write"
    repeated = bool(answers) and all(reply.code == APPEND_REPEATED for reply in answers.values())
    return {"stored": sum(reply.stored for reply in answers.values()), "repeated": repeated}


def _homes(messages: Messages, n_shards: int) -> dict[int, list[int]]:
    """Shard -> which messages are at home there, in their order."""
    table = SlotTable.initial(n_shards)
    shards = {client: table.shard_of(client) for client in set(messages.clients)}
    homes: dict[int, list[int]] = {}
    for number, client in enumerate(messages.clients):
        homes.setdefault(shards[client], []).append(number)
    return homes


def _part(writer: str, batch: int, block: int, messages: Messages, of: list[int], identity: bytes | None) -> Append:
    clients, topics, bodies = ([column[number] for number in of] for column in (messages.clients, messages.topics, messages.bodies))
    size = sum(len(each) for column in (clients, topics, bodies) for each in column)
    if size > _BYTES_MAX:
        raise asked.senseless(f"messages of {size} bytes go to one shard, and {_BYTES_MAX} are possible")
    # When they are taken is for the shard to say: a block that comes again is none that was published earlier.
    return Append(writer.encode(), batch, block, 0, clients, bytes(messages.flags[number] for number in of), topics, bodies, identity)
