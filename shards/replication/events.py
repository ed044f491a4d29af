"""What happens to a replica, and what it wants done. The shell carries effects out in their order, before it brings the next event."""

from __future__ import annotations

from dataclasses import dataclass

from shards.replication.configuration import Configuration, Rid
from shards.replication.entry import Entry, Kind
from shards.replication.messages import Message, Pull
from shards.replication.ports import Outcome

# ---- events


@dataclass(frozen=True, slots=True)
class Tick:
    """Steady time; every HEARTBEAT_MS or oftener. The first one starts the replica."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class Received:
    source: Rid
    message: Message


@dataclass(frozen=True, slots=True)
class Submit:
    """To a leader: make this an entry. position: of a RECORD, else 0."""

    kind: Kind
    payload: bytes
    position: int = 0


@dataclass(frozen=True, slots=True)
class SyncStarted:
    """The sync asked for begins now: it will cover everything written to the log so far."""


@dataclass(frozen=True, slots=True)
class SyncDone:
    """The sync under way has ended well."""


@dataclass(frozen=True, slots=True)
class StoreBroke:
    """A sync, the log or the data engine has failed; nobody knows what is on the disk."""

    reason: str


@dataclass(frozen=True, slots=True)
class RegisterRead:
    """The answer to ReadRegister; None: the register did not answer, or has no such record."""

    now: Configuration | None


@dataclass(frozen=True, slots=True)
class Proposed:
    """The answer to Propose; at the latest after REGISTER_MS, then UNKNOWN."""

    new: Configuration
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class DataSynced:
    """Everything applied up to this index is on the disk of the data engine."""

    index: int


@dataclass(frozen=True, slots=True)
class CheckpointMade:
    number: int
    index: int
    epoch: int
    files: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class ChunkWritten:
    """What WriteChunk said is in this file, which now reaches to `end`."""

    file: int
    end: int


@dataclass(frozen=True, slots=True)
class Installed:
    """The checkpoint is what the data engine opens from now on. position: the highest one in it."""

    index: int
    epoch: int
    position: int


@dataclass(frozen=True, slots=True)
class TransferFailed:
    """Making, writing or installing a checkpoint did not work; what there was is erased."""

    reason: str


@dataclass(frozen=True, slots=True)
class HandOver:
    """To a leader: let somebody else lead (its site is drained, or leaves)."""

    to: Rid


Event = (
    Tick | Received | Submit | SyncStarted | SyncDone | StoreBroke | RegisterRead | Proposed | DataSynced
    | CheckpointMade | ChunkWritten | Installed | TransferFailed | HandOver
)  # fmt: skip


# ---- effects


@dataclass(frozen=True, slots=True)
class Send:
    """May be lost; whoever waits for an answer asks again."""

    to: Rid
    message: Message


@dataclass(frozen=True, slots=True)
class StartSync:
    """Sync the log when convenient (the end of this tick is); SyncStarted at its beginning, then SyncDone or StoreBroke."""


@dataclass(frozen=True, slots=True)
class ReadRegister:
    """Always answered by RegisterRead."""


@dataclass(frozen=True, slots=True)
class Propose:
    """Compare-and-set on version new.ver - 1; always answered by Proposed."""

    new: Configuration


@dataclass(frozen=True, slots=True)
class Apply:
    """Apply these to the data engine, with the applied row in the same write, unsynced (shards.replication.applying). position: the highest
    one of a record that is in it then."""

    entries: tuple[Entry, ...]
    position: int


@dataclass(frozen=True, slots=True)
class SyncData:
    """Sync the data engine in an idle moment; DataSynced when it is done. Another one may come before: then one is enough."""

    index: int


@dataclass(frozen=True, slots=True)
class Serve:
    """This replica leads, and everything up to `position` is applied here: the shard may be opened on its data engine."""

    epoch: int
    position: int


@dataclass(frozen=True, slots=True)
class Committed:
    """Every record up to this position is committed and applied here. Only while serving."""

    position: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The record of this position was not taken; nothing of it is anywhere."""

    position: int
    reason: str


@dataclass(frozen=True, slots=True)
class SteppedDown:
    """It leads no more. What was submitted and is not committed may or may not survive: the shard's process begins anew."""

    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """End the process; never sync these files again."""

    reason: str


@dataclass(frozen=True, slots=True)
class MakeCheckpoint:
    """Of the data engine, with what it has applied; CheckpointMade or TransferFailed."""

    number: int


@dataclass(frozen=True, slots=True)
class EraseCheckpoint:
    number: int


@dataclass(frozen=True, slots=True)
class SendChunk:
    """Read at most CHUNK_BYTES there, and send Chunk.of(pull, data)."""

    to: Rid
    pull: Pull


@dataclass(frozen=True, slots=True)
class BeginTransfer:
    """Erase what an earlier transfer left, and make these files, empty, beside the data."""

    files: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class WriteChunk:
    """Into the file of this place; ChunkWritten or TransferFailed."""

    file: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Install:
    """Sync the files and their directory, put the own identity in, rename it over the data, open that; Installed. In this order, so that a
    crash leaves the old data or the new, whole."""

    index: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Dismissed:
    """A linearizable read shows that this copy is no replica and is not becoming one: its data may be erased."""


@dataclass(frozen=True, slots=True)
class Superseded:
    """A linearizable read shows that leadership was forced, and this copy is of an incarnation that is over: what it holds may be nowhere
    else, and takes no part any more. It is put aside, and another copy is made, under another id."""

    incarnation: int


Effect = (
    Send | StartSync | ReadRegister | Propose | Apply | SyncData | Serve | Committed | Refused | SteppedDown | Failed
    | MakeCheckpoint | EraseCheckpoint | SendChunk | BeginTransfer | WriteChunk | Install | Dismissed | Superseded
)  # fmt: skip
