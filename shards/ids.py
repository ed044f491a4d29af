"""Numbers that must not be mixed up.

A connection number is a counter of the home shard, shifted, with the shard's index in the low byte: it only grows for a
client, and two shards never issue the same one.  A subscription id is unique in the whole store for the same reason.
"""

from __future__ import annotations

from typing import NewType

ConnNo = NewType("ConnNo", int)
SubId = NewType("SubId", int)

SHARD_BITS = 8
EXPIRY_NEVER = 0xFFFFFFFF


def conn_no(counter: int, shard: int) -> ConnNo:
    return ConnNo(counter << SHARD_BITS | shard)


def sub_id(shard: int, token: int, counter: int) -> SubId:
    """Unique over all shards and owners: the owner token is never issued twice by its shard."""
    return SubId(shard << 56 | (token & 0xFFFFFFFF) << 24 | counter & 0xFFFFFF)


def home_of_sub(number: int) -> int:
    """The shard at which the session of a subscription is at home."""
    return number >> 56


def token_of_sub(number: int) -> int:
    """The owner token under which a subscription id was made."""
    return number >> 24 & 0xFFFFFFFF


def stands_for(home: int) -> SubId:
    """The id of a route that stands for all routes of subscriptions at home there, of which a shard does not know whether it has them
    (shards.begun_anew).  No owner has the token 0."""
    return sub_id(home, 0, 1)
