"""What an archive consists of: files, how far each generation is in them, what was lost; and how commits lead from one state to the next.

Values and rules only; where they are kept is pipeline.manifest's business.

Holds after every commit:

1. the positions of a generation that are archived are one range without a hole, and each commit goes on where the last one ended;
2. rows and digest that a commit says it reached are those of the pieces in the files that it adds;
3. what a commit rewrites comes to the same rows and digests, generation by generation.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal

from holdfast_spark.digest import MODULUS
from holdfast_spark.parquet_units import Piece

VERSION: Final = 1
REMOVED_KEPT_MS: Final = 30 * 86_400_000
"""How long it is remembered which files were rewritten; they themselves go earlier."""

Generation = tuple[int, int]
"""(shard, generation)."""


class ArchiveError(Exception):
    """What stops an archive, or what is wrong with one. One sentence for people."""


class SparkEnded(ArchiveError):
    """The session that runs the tasks has ended, and with it whatever goes on for long: who supervises it starts it anew."""


class ManifestDamaged(ArchiveError):
    """A commit is missing, or is not what was written."""


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """A Parquet file of the archive. path: below the root; hour: since 1970, UTC; crc: CRC-32 of all its bytes."""

    path: str
    hour: int
    rows: int
    bytes: int
    crc: int
    raw_bytes: int
    ts_first: int
    ts_last: int
    pieces: tuple[Piece, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "hour": self.hour,
            "rows": self.rows,
            "bytes": self.bytes,
            "crc": f"{self.crc:08x}",
            "raw_bytes": self.raw_bytes,
            "ts": [self.ts_first, self.ts_last],
            "pieces": [piece.row() for piece in self.pieces],
        }

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> ArchiveFile:
        pieces = tuple(Piece.of(row) for row in found["pieces"])
        first, last = found["ts"]
        crc = int(found["crc"], 16)
        return cls(found["path"], found["hour"], found["rows"], found["bytes"], crc, found["raw_bytes"], first, last, pieces)


@dataclass(frozen=True, slots=True)
class Reached:
    """start <= position < stop of a generation is archived: so many rows with this digest."""

    shard: int
    generation: int
    start: int
    stop: int
    rows: int
    digest: int

    def as_json(self) -> list[int | str]:
        return [self.shard, self.generation, self.start, self.stop, self.rows, f"{self.digest:016x}"]

    @classmethod
    def of(cls, found: list[Any]) -> Reached:
        shard, generation, start, stop, rows, digest = found
        return cls(shard, generation, start, stop, rows, int(digest, 16))


@dataclass(frozen=True, slots=True, order=True)
class Lost:
    """start <= position < stop of a generation had been dropped when its turn came: the archive does not have it."""

    shard: int
    generation: int
    klass: str
    start: int
    stop: int
    reason: str

    def as_json(self) -> list[int | str]:
        return [self.shard, self.generation, self.klass, self.start, self.stop, self.reason]

    @property
    def where(self) -> str:
        return f"shard {self.shard}, generation {self.generation} (class {self.klass}), positions {self.start} to {self.stop - 1}"

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Draft:
    """A commit without its place in the order. store: `site:incarnation`; filters: of what was archived, none for everything."""

    kind: Literal["archive", "compact"]
    store: str
    run: str
    made_ms: int
    add: tuple[ArchiveFile, ...] = ()
    remove: tuple[str, ...] = ()
    reached: tuple[Reached, ...] = ()
    lost: tuple[Lost, ...] = ()
    filters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class State:
    """What the commits up to ``number`` come to. Never changed: a commit makes another one."""

    number: int = 0
    chain: str = ""
    """SHA-256 of the last commit's bytes."""
    store: str = ""
    """Of the last commit. The site never changes; its incarnation may."""
    filters: tuple[str, ...] = ()
    """Of what is archived, the same in all commits; none: everything."""
    files: Mapping[str, ArchiveFile] = field(default_factory=dict)
    reached: Mapping[Generation, Reached] = field(default_factory=dict)
    lost: tuple[Lost, ...] = ()
    removed: Mapping[str, int] = field(default_factory=dict)
    """Files that were rewritten, and when (ms): whoever reads an older state may still want them."""

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files.values())

    def upto(self, shard: int, generation: int, since: int) -> int:
        """The position from which on a generation is not archived."""
        reached = self.reached.get((shard, generation))
        return since if reached is None else reached.stop

    def boundaries(self) -> dict[int, dict[int, int]]:
        """Shard -> generation -> position below which it is archived."""
        found: dict[int, dict[int, int]] = defaultdict(dict)
        for (shard, generation), reached in sorted(self.reached.items()):
            found[shard][generation] = reached.stop
        return dict(found)


@dataclass(frozen=True, slots=True)
class Commit:
    number: int
    previous: str
    draft: Draft

    def encode(self) -> bytes:
        draft = self.draft
        content = {
            "version": VERSION,
            "number": self.number,
            "previous": self.previous,
            "kind": draft.kind,
            "store": draft.store,
            "run": draft.run,
            "made_ms": draft.made_ms,
            "add": [file.as_json() for file in draft.add],
            "remove": list(draft.remove),
            "reached": [each.as_json() for each in draft.reached],
            "lost": [each.as_json() for each in draft.lost],
            "filters": list(draft.filters),
        }
        return sealed(content)

    @classmethod
    def decode(cls, data: bytes, where: str) -> Commit:
        found = unsealed(data, where)
        try:
            draft = Draft(
                found["kind"],
                found["store"],
                found["run"],
                found["made_ms"],
                tuple(ArchiveFile.of(each) for each in found["add"]),
                tuple(found["remove"]),
                tuple(Reached.of(each) for each in found["reached"]),
                tuple(Lost(*each) for each in found["lost"]),
                tuple(found["filters"]),
            )
            return cls(found["number"], found["previous"], draft)
        except (KeyError, TypeError, ValueError) as error:
            raise ManifestDamaged(f"{where} is not a commit of an archive: {error!r}") from None


def applied(state: State, commit: Commit, data: bytes) -> State:
    """The state after the commit. Raises ManifestDamaged when it is not one that follows."""
    draft, where = commit.draft, f"commit {commit.number}"
    if commit.number != state.number + 1 or commit.previous != state.chain:
        raise ManifestDamaged(f"{where} does not follow commit {state.number}: one of them was changed or comes from another archive")
    if state.store and site_of(draft.store) != site_of(state.store):
        raise ManifestDamaged(f"{where} is of the site {site_of(draft.store)}, and those before it are of {site_of(state.store)}")
    if state.number and draft.filters != state.filters:
        raise ManifestDamaged(f"{where} is of the filters {list(draft.filters)}, and those before it are of {list(state.filters)}")
    files = dict(state.files)
    removed = {path: ms for path, ms in state.removed.items() if ms > draft.made_ms - REMOVED_KEPT_MS}
    before = _totals(files[path] for path in draft.remove if path in files)
    for path in draft.remove:
        if files.pop(path, None) is None:
            raise ManifestDamaged(f"{where} removes {path}, which the archive does not have")
        removed[path] = draft.made_ms
    for file in draft.add:
        if file.path in files or file.path in removed:
            raise ManifestDamaged(f"{where} adds {file.path}, which the archive has already")
        if file.rows != sum(piece.rows for piece in file.pieces):
            raise ManifestDamaged(f"{where} adds {file.path} with {file.rows} rows, and its pieces have others")
        files[file.path] = file
    added = _totals(draft.add)
    claimed = {(each.shard, each.generation): (each.rows, each.digest) for each in draft.reached if each.rows}
    if draft.kind == "archive" and (added != claimed or draft.remove):
        raise ManifestDamaged(f"{where} says that it reached {_shown(claimed)}, and its files hold {_shown(added)}")
    if draft.kind == "compact" and (added != before or draft.reached):
        raise ManifestDamaged(f"{where} rewrites {_shown(before)} as {_shown(added)}")
    reached = dict(state.reached)
    for each in draft.reached:
        key = each.shard, each.generation
        was = reached.get(key)
        if each.start >= each.stop or (was is not None and was.stop != each.start):
            raise ManifestDamaged(
                f"{where} goes on at {each.start} in generation {each.generation} of shard {each.shard}, not where it was left"
            )
        if was is not None:
            each = replace(each, start=was.start, rows=was.rows + each.rows, digest=(was.digest + each.digest) % MODULUS)
        reached[key] = each
    lost = tuple(sorted({*state.lost, *draft.lost}))
    return State(commit.number, hashlib.sha256(data).hexdigest(), draft.store, draft.filters, files, reached, lost, removed)


def _totals(files: Iterable[ArchiveFile]) -> dict[Generation, tuple[int, int]]:
    """Of each generation rows and digest of the pieces."""
    found: dict[Generation, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for file in files:
        for piece in file.pieces:
            rows, digest = found[piece.unit.shard, piece.unit.generation]
            found[piece.unit.shard, piece.unit.generation] = rows + piece.rows, (digest + piece.digest) % MODULUS
    return dict(found)


def _shown(totals: Mapping[Generation, tuple[int, int]]) -> str:
    rows = sum(rows for rows, _ in totals.values())
    return f"{rows} rows of {len(totals)} generations"


def path_of_hour(hour: int) -> str:
    """The directory of an hour; other readers know it as two partition columns."""
    at = datetime.fromtimestamp(3600 * hour, UTC)
    return f"date={at:%Y-%m-%d}/hour={at:%H}"


def site_of(store: str) -> str:
    return store.rpartition(":")[0]


def encode_state(state: State) -> bytes:
    content = {
        "version": VERSION,
        "number": state.number,
        "chain": state.chain,
        "store": state.store,
        "filters": list(state.filters),
        "files": [state.files[path].as_json() for path in sorted(state.files)],
        "reached": [state.reached[key].as_json() for key in sorted(state.reached)],
        "lost": [each.as_json() for each in state.lost],
        "removed": state.removed,
    }
    return sealed(content)


def decode_state(data: bytes, where: str) -> State:
    found = unsealed(data, where)
    try:
        files = [ArchiveFile.of(each) for each in found["files"]]
        reached = [Reached.of(each) for each in found["reached"]]
        lost = tuple(Lost(*each) for each in found["lost"])
        return State(
            found["number"],
            found["chain"],
            found["store"],
            tuple(found["filters"]),
            {file.path: file for file in files},
            {(each.shard, each.generation): each for each in reached},
            lost,
            found["removed"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ManifestDamaged(f"{where} is not the state of an archive: {error!r}") from None


def sealed(content: Mapping[str, Any]) -> bytes:
    """Canonical JSON with the digest of itself, on one line."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f'{text[:-1]},"~sha256":"{digest}"}}\n'.encode()


def unsealed(data: bytes, where: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
        digest = found.pop("~sha256")
    except (ValueError, KeyError, AttributeError):
        raise ManifestDamaged(f"{where} is not whole: it is no JSON object with the digest of itself") from None
    if sealed(found) != data:
        raise ManifestDamaged(f"{where} was changed after it was written: its digest is not {str(digest)[:16]}...")
    if found.get("version") != VERSION:
        raise ManifestDamaged(f"{where} is of version {found.get('version')}, and this program reads version {VERSION}")
    return dict(found)
