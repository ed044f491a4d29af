"""What a backup says of itself, and which backups a directory holds (docs/backup.md, "What is in it").

    DIR/lock                      held while a backup is taken into DIR
    DIR/NUMBER-TIME/              a backup; numbers grow by one
        manifest.json             written last
        pipeline.token, api-keys.json, bridges.toml    of the data directory, where they are there
        shards/N/                 the files of the store of shard N
    DIR/NUMBER-TIME.part/         one that is being taken, or was begun and not ended

Always holds: a directory without `.part` was renamed to its name when everything in it, the manifest too, was on the disk; a manifest has
the sums of all files and of itself.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from actors.datadir import write_durably
from config.load import BRIDGES_FILE

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
PART = ".part"
BESIDE = ("pipeline.token", "api-keys.json", BRIDGES_FILE)
"""Of the files in the data directory itself those that others outside have something to do with."""
_SUM = "sum"
_NAME = re.compile(r"(\d{6,})-\d{8}T\d{6}Z")
_BYTES_MAX = 1 << 30


class BackupError(Exception):
    """One sentence for the operator."""


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """name: its path below the backup."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class CopiedShard:
    """sequence, position: number of the last operation in its store, and the highest position of its records; layouts: those of its
    generations."""

    shard: int
    sequence: int
    position: int
    generations: int
    layouts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """number: of the backup in its directory. made: when its moment was, RFC 3339. stopped: no broker ran, so there was nothing after it.
    site, incarnation, n_shards, created: of site.json."""

    format: int
    number: int
    made: str
    release: str
    stopped: bool
    site: str
    incarnation: int
    n_shards: int
    created: str
    backend: str
    shards: tuple[CopiedShard, ...]
    files: tuple[CopiedFile, ...]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def store(self) -> str:
        return f"{self.site}:{self.incarnation}"


@dataclass(frozen=True, slots=True)
class Backup:
    path: Path
    manifest: Manifest


def write_manifest(path: Path, manifest: Manifest) -> None:
    fields = asdict(manifest)
    write_durably(path / MANIFEST, json.dumps(fields | {_SUM: _sum_of(fields)}, indent=1) + "\n", mode=0o600)


def read_backup(path: Path) -> Backup:
    """Raises BackupError when there is none at this path, or not one that this program reads."""
    file = path / MANIFEST
    try:
        if file.stat().st_size > _BYTES_MAX:
            raise BackupError(f"{file} has more than {_BYTES_MAX} bytes: it is no manifest")
        fields = json.loads(file.read_bytes())
        version = int(fields["format"])
    except FileNotFoundError:
        raise BackupError(f"{path} is no backup: it has no {MANIFEST}") from None
    except OSError as error:
        raise BackupError(f"{file} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError):
        raise BackupError(f"{file} is damaged: take another backup") from None
    if version > FORMAT_VERSION:
        raise BackupError(f"{path} has format version {version}, and this Holdfast reads up to {FORMAT_VERSION}: use a newer Holdfast")
    try:
        found = fields.pop(_SUM)
        if found != _sum_of(fields):
            raise BackupError(f"{file} is damaged, its sum is not right: take another backup")
        return Backup(path, _manifest(fields))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BackupError(f"{file} is damaged: take another backup") from None


def backups_in(directory: Path) -> list[Path]:
    """Those that were taken to their end, the newest last, whatever has become of them since. Raises BackupError."""
    try:
        return sorted((path for path in directory.iterdir() if _NAME.fullmatch(path.name)), key=number_of)
    except FileNotFoundError:
        raise BackupError(f"{directory} is not there") from None
    except OSError as error:
        raise BackupError(f"{directory} cannot be read: {error.strerror}") from error


def parts_in(directory: Path) -> list[Path]:
    """Those that were begun and not ended, or are being taken now."""
    return sorted(path for path in directory.iterdir() if path.name.endswith(PART) and _NAME.fullmatch(path.name.removesuffix(PART)))


def number_of(path: Path) -> int:
    found = _NAME.fullmatch(path.name)
    return int(found[1]) if found else 0


def find_backup(path: Path) -> Backup:
    """The one at this path, or the newest of those that it holds. Raises BackupError."""
    if (path / MANIFEST).exists() and not path.name.endswith(PART):
        return read_backup(path)
    if path.name.endswith(PART):
        raise BackupError(f"{path} was begun and never ended: it is no backup")
    found = backups_in(path)
    if not found:
        begun = f"; {parts_in(path)[0]} was begun and never ended" if parts_in(path) else ""
        raise BackupError(f"{path} holds no backup{begun}")
    return read_backup(found[-1])


def _manifest(fields: dict[str, Any]) -> Manifest:
    shards = tuple([CopiedShard(**{**each, "layouts": tuple(each["layouts"])}) for each in fields.pop("shards")])
    if [shard.shard for shard in shards] != list(range(fields["n_shards"])):
        raise ValueError("shards")
    files = tuple([CopiedFile(**each) for each in fields.pop("files")])
    for file in files:
        # What is written where is said by nobody but us.
        parts = Path(file.name).parts
        if not parts or Path(file.name).is_absolute() or ".." in parts:
            raise ValueError(file.name)
    return Manifest(**fields, shards=shards, files=files)


def _sum_of(fields: dict[str, Any]) -> str:
    # As it is read again: tuples are lists then.
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
