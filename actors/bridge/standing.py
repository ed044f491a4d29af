"""What a bridge inwards remembers of its session at the other broker, in a file of its own.

Identifiers of QoS 2 that this broker still knows mean something only within that session: with a new one they would keep messages
away that are others.  So before CONNECT leaves, the file says that nothing is certain: its answer may be lost, and it may have made a new
session.  It is certain again when the other broker has answered that the session is there, or has sent something of it where that was not
certain before; or when this broker has forgotten those identifiers, after which what was under way at QoS 2 may come twice.  Nothing is
lost.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from actors.bridge.files import write_durably

FILE: Final = "session.json"


@dataclass(frozen=True, slots=True)
class Standing:
    """url, client, version: which session.  here: which store, at which incarnation.  filters: what may be subscribed there.  qos: at which
    it is; 0: perhaps nothing is.  certain: identifiers of QoS 2 that this broker knows are of that session."""

    url: str
    client: str
    version: str
    here: str
    filters: tuple[str, ...] = ()
    qos: int = 0
    certain: bool = False

    def same_place(self, other: Standing) -> bool:
        return (self.url, self.client, self.version, self.here) == (other.url, other.client, other.version, other.here)

    def uncertain(self) -> Standing:
        return replace(self, certain=False)


def read_standing(state_dir: Path) -> Standing | None:
    """None: there is none, or none that can be read."""
    try:
        said = json.loads((state_dir / FILE).read_text(encoding="utf-8"))
        url, client, version, here = [str(said[key]) for key in ("url", "client", "version", "here")]
        return Standing(url, client, version, here, tuple(map(str, said["filters"])), int(said["qos"]), bool(said["certain"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_standing(state_dir: Path, standing: Standing) -> None:
    """Durable, whole or not at all.  Blocks; raises OSError."""
    state_dir.mkdir(parents=True, exist_ok=True)
    write_durably(state_dir / FILE, json.dumps(asdict(standing)).encode())
