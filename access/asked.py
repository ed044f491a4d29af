"""What a plugin that decides is asked: may it?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from access.identity import Identity

Action = Literal["publish", "subscribe", "receive"]


@dataclass(frozen=True, slots=True)
class Asked:
    """Somebody wants to publish to a topic, to subscribe to a filter, or to be sent a message of a topic."""

    who: Identity
    client: str
    action: Action
    topic: str
