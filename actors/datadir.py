"""The data directory: who holds it, whose site it is, which run uses it.

    lock        held by the launcher for as long as it lives; the kernel lets go of it with the process, whatever ended that
    site.json   site id, incarnation, format version, numbers of shards, of sites and of copies, what `storage_quota = "auto"` stands for:
                written once, durable before anything refers to it; and when the loss of a store is accepted, with a greater incarnation
    secret      32 bytes as hex, for the links of this site, unless it shares those of several sites; readable by its owner only
    pipeline.token  whoever can read it may read and write all messages through the reader (actors.reader.token)
    sites.json  of several sites what the site process told last (actors.sites.server); it may be lost
    run.json    where the present run keeps its sockets, and who launched it: lets `status` and `down` find it, and the next `up` clear up
    reserve     room for a start on a full disk (actors.reserve)
    restoring   a restore into this directory has not ended (actors.backup.restoring): no broker starts in it
    logs/       of every process
    shards/     the stores; theirs

Leaves to others: what is in the stores (shards), who is started (actors.launcher).
Always holds: whoever has a DataDirectory has the lock. Errors meant for people are DirectoryError, one sentence each.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from actors.belongings import belongings
from actors.processes import end, identify
from actors.reserve import free_bytes, give_back, stored_bytes
from actors.run import Run, boot_id, read_run, record_run

FORMAT_VERSION = 1
FORMAT_VERSION_SITES = 2
"""Of a directory that is one of several sites: who knows format 1 alone would serve it as if there were no others."""
LOCK_WITHIN_S = 1.0
QUOTA_AUTO_PERCENT = 80
RESTORING = "restoring"
RUN_PREFIX = "holdfast-"
SOCKET_ROOM = 80
"""A unix socket path has 107 bytes; Ray's own sockets lie up to 75 below its directory. Longer temporary directories are not used."""


class DirectoryError(Exception):
    """The data directory cannot be used; the message is one sentence for the operator."""


@dataclass(frozen=True, slots=True)
class StoreLoss:
    """The store of a shard was lost, and the operator has said so: it began anew with this incarnation of the site."""

    shard: int
    incarnation: int
    accepted: str


@dataclass(frozen=True, slots=True)
class Site:
    """What site.json says."""

    format: int
    site: str
    incarnation: int
    n_shards: int
    created: str
    quota_auto_bytes: int = 0
    """What `storage_quota = "auto"` stands for; 0: not known yet."""
    losses: tuple[StoreLoss, ...] = ()
    n_sites: int = 1
    replication_factor: int = 1


def told_of_copies(site: Site, shard: int) -> str:
    """Why the store of one shard is not replaced by hand where several sites share it, in one sentence; empty: it stands alone."""
    if site.n_sites == 1:
        return ""
    return (
        f"{site.n_sites} sites share this store, and what is here of shard {shard} is a copy: move it away if it is broken and start this "
        "site (holdfast up), and it is made anew from the others; if those that were in sync are gone for good, "
        f"`holdfast ds force-leader {shard} SITE --accept-data-loss` goes on from the copy of a site that is up (docs/sites.md); if no "
        "other has a copy that can be read, restore all of a backup"
    )


def read_site(data_dir: Path) -> Site | None:
    """The site of a data directory, or None when it has none yet."""
    path = data_dir / "site.json"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DirectoryError(f"{path} cannot be read: {error.strerror}") from error
    try:
        fields = json.loads(text)
        version = int(fields["format"])
        if version > FORMAT_VERSION_SITES:
            raise DirectoryError(
                f"the data directory {data_dir} has format version {version}, "
                f"and this Holdfast reads up to {FORMAT_VERSION_SITES}: use a newer Holdfast"
            )
        return Site(
            version, str(fields["site"]), int(fields["incarnation"]), int(fields["n_shards"]), str(fields["created"]),
            # Sites of before there was a quota have none.
            int(fields.get("quota_auto_bytes", 0)),
            tuple([StoreLoss(**each) for each in fields.get("losses", ())]),
            # Those of before there could be several have one.
            int(fields.get("n_sites", 1)), int(fields.get("replication_factor", 1)),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError) as error:
        raise DirectoryError(f"{path} is damaged ({error!r}): restore it from a backup, the stores beside it are untouched") from error


def write_site(data_dir: Path, site: Site) -> None:
    write_durably(data_dir / "site.json", json.dumps(asdict(site), indent=1) + "\n", mode=0o600)


class DataDirectory:
    """A data directory that is ours: locked, with a site, cleared of what an earlier run left."""

    def __init__(self, path: Path, lock: int, site: Site, secret: bytes, *, new: bool) -> None:
        self.path = path
        self.site = site
        self.secret = secret
        self.new = new
        self._lock = lock
        self._run_lock: int | None = None
        self.run_dir: Path | None = None
        self.given_back = 0
        """Bytes of the reserve that were needed to start on a full disk."""

    def begin_run(self, *, joined: bool) -> Path:
        """Make the run directory, and record it before anything is started in it."""
        launcher = identify(os.getpid())
        assert launcher is not None
        self.run_dir = Path(tempfile.mkdtemp(prefix=RUN_PREFIX, dir=_run_parent()))
        # Cleaners of temporary directories leave a directory alone while somebody holds a lock on it.
        self._run_lock = os.open(self.run_dir, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._run_lock, fcntl.LOCK_EX)
        record_run(self.path, Run(self.run_dir, launcher, boot_id(), joined))
        return self.run_dir

    def end_run(self) -> None:
        """Forget the run. To be called when none of its processes is left."""
        (self.path / "run.json").unlink(missing_ok=True)
        if self.run_dir is not None:
            shutil.rmtree(self.run_dir, ignore_errors=True)
            self.run_dir = None
        if self._run_lock is not None:
            os.close(self._run_lock)
            self._run_lock = None

    def close(self) -> None:
        os.close(self._lock)


def open_data_directory(
    path: Path,
    *,
    n_shards: int | None,
    n_shards_new: int,
    n_sites: int = 1,
    replication_factor: int = 1,
    stores: Path | None = None,
    lock_within: float = LOCK_WITHIN_S,
) -> DataDirectory:
    """Take a data directory, making it if it is new, and end what is left of an earlier run.

    `n_shards` is the number asked for, None for `auto`: then it is `n_shards_new` at the first start and what it is ever after.
    `n_sites`, `replication_factor`: those of the first start for ever.
    `stores`: where the stores of the shards lie, or will; None for the usual place.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Also one that is older than this rule, or that somebody made for us; what is another's stays as he wants it.
        with contextlib.suppress(PermissionError):
            path.chmod(0o700)
        lock = _lock(path, lock_within)
        if (path / RESTORING).exists():
            os.close(lock)
            raise DirectoryError(
                f"a restore into the data directory {path} has not ended: say `holdfast restore` again, or remove the directory"
            )
        # Before anything is written: the disk may be full.
        given_back = give_back(path)
        _sign(lock)
        (path / "logs").mkdir(mode=0o700, exist_ok=True)
    except NotADirectoryError as error:
        raise DirectoryError(f"the data directory {path} cannot be made: {error.filename} is no directory") from error
    except FileExistsError as error:
        raise DirectoryError(f"the data directory {path} cannot be made: {error.filename} is a file") from error
    except OSError as error:
        raise DirectoryError(f"the data directory {path} cannot be used: {error.strerror}") from error
    try:
        new = read_site(path) is None
        site = _settle(path, n_shards, n_shards_new, (n_sites, replication_factor), stores or path / "shards")
        secret = _secret(path)
        _clear_up(path)
    except OSError as error:
        os.close(lock)
        raise DirectoryError(f"the data directory {path} cannot be used: {error.strerror} ({error.filename})") from error
    except DirectoryError:
        os.close(lock)
        raise
    directory = DataDirectory(path, lock, site, secret, new=new)
    directory.given_back = given_back
    return directory


@contextmanager
def hold(path: Path) -> Iterator[None]:
    """A data directory that is there, for whoever changes something in it without a broker. Raises DirectoryError when one runs."""
    lock = _lock(path, LOCK_WITHIN_S)
    try:
        _sign(lock)
        yield
    finally:
        os.close(lock)


def record_loss(path: Path, shard: int) -> int:
    """Say in site.json that the store of a shard is lost; the incarnation of the site that begins with that. For the holder of the lock."""
    site = read_site(path)
    assert site is not None
    incarnation = site.incarnation + 1
    site = replace(site, incarnation=incarnation, losses=(*site.losses, StoreLoss(shard, incarnation, _now())))
    write_site(path, site)
    return incarnation


def record_incarnation(path: Path, above: int) -> int:
    """Say in site.json that a store has been put back; the incarnation of the site that begins with that, greater than the one it has,
    and than `above`. For the holder of the lock."""
    site = read_site(path)
    assert site is not None
    site = replace(site, incarnation=max(site.incarnation, above) + 1)
    write_site(path, site)
    return site.incarnation


def _lock(path: Path, within: float) -> int:
    descriptor = os.open(path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + within
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            # A launcher that is being killed this moment lets go of its lock when the kernel gets round to it.
            # We are a launcher too, and have no event loop to hold up.
            if time.monotonic() < deadline:
                time.sleep(0.05)
                continue
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise DirectoryError(f"the data directory {path} is in use by the broker with pid {holder}") from None
    return descriptor


def _sign(lock: int) -> None:
    """Say who holds it."""
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)


def _settle(path: Path, n_shards: int | None, n_shards_new: int, copies: tuple[int, int], stores: Path) -> Site:
    """copies: n_sites, replication_factor."""
    site = read_site(path)
    if site is None:
        site = Site(FORMAT_VERSION, secrets.token_hex(8), 1, n_shards or n_shards_new, _now(), _quota_auto(path, stores))
        site = replace(site, n_sites=copies[0], replication_factor=copies[1])
        site = replace(site, format=_format(site))
        write_site(path, site)
        sync_directory(path.parent)
    elif copies[0] != site.n_sites:
        raise DirectoryError(
            f"the data directory {path} has n_sites = {site.n_sites}, which cannot be changed, and the configuration asks for {copies[0]}: "
            "docs/sites.md says how to move to another number"
        )
    elif copies[1] != site.replication_factor:
        raise DirectoryError(
            f"the data directory {path} has replication_factor = {site.replication_factor}, which cannot be changed, "
            f"and the configuration asks for {copies[1]}"
        )
    elif n_shards is not None and n_shards != site.n_shards:
        raise DirectoryError(
            f"the data directory {path} has n_shards = {site.n_shards}, which cannot be changed, "
            f"and the configuration asks for {n_shards}: say {site.n_shards} or auto"
        )
    site = replace(site, format=_format(site))
    if not site.quota_auto_bytes:
        site = replace(site, quota_auto_bytes=_quota_auto(path, stores))
        # On a full disk it waits for a later start: that must not be in the way of this one.
        with contextlib.suppress(OSError):
            write_site(path, site)
    return site


def _format(site: Site) -> int:
    return FORMAT_VERSION if site.n_sites == 1 else FORMAT_VERSION_SITES


def _quota_auto(path: Path, stores: Path) -> int:
    """80 % of what is free, and of what the stores have taken already: as at a first start."""
    # The directory of the stores may be made later, by the shards.
    there = next((directory for directory in (stores, *stores.parents) if directory.exists()), path)
    return (free_bytes(there) + stored_bytes(stores)) * QUOTA_AUTO_PERCENT // 100


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _secret(path: Path) -> bytes:
    file = path / "secret"
    if not file.exists():
        write_durably(file, secrets.token_hex(32) + "\n", mode=0o600)
    text = file.read_text(encoding="ascii", errors="replace").strip()
    try:
        secret = bytes.fromhex(text)
    except ValueError:
        secret = b""
    if len(secret) != 32:
        raise DirectoryError(f"{file} is damaged: remove it while the broker is down, the next start makes a new one")
    return secret


def _clear_up(path: Path) -> None:
    """End what a killed run left behind. The lock is ours, so nothing of this directory has a right to run."""
    run = read_run(path)
    first = belongings(path, run)
    if run is not None and run.run_dir.name.startswith(RUN_PREFIX):
        # First: actors in a Ray that lives on are started again when they are killed, and give up when their run directory is gone.
        shutil.rmtree(run.run_dir, ignore_errors=True)
    left = end(lambda: [*first, *belongings(path, run)], within=10.0)
    if left:
        raise DirectoryError(f"processes of an earlier run do not end: {', '.join(str(process.pid) for process in left)}")
    if run is not None and run.run_dir.name.startswith(RUN_PREFIX):
        shutil.rmtree(run.run_dir, ignore_errors=True)
    (path / "run.json").unlink(missing_ok=True)


def _run_parent() -> str:
    usual = tempfile.gettempdir()
    longest = len(usual) + len(RUN_PREFIX) + 1 + 8
    return usual if longest + SOCKET_ROOM <= 107 else "/tmp"


def write_durably(path: Path, text: str, *, mode: int) -> None:
    beside = path.with_name(path.name + ".part")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
