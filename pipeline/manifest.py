"""The manifest of an archive on disk: its commits, one file each, and now and then what they come to.

    <root>/_holdfast/00000001.json   what the first commit added, removed and reached; each names the bytes of the one before it
    <root>/_holdfast/state-00000100.json   what commits 1 to 100 come to, so that nobody has to read them all

A commit is one file that is made whole under a name of its own and then linked to its number, which fails when the number is taken: so of
two who commit at once one is first, and the other looks again. It is there, or it is not; a crash leaves at most a file that nobody reads.

What a commit may say is pipeline.archived's; reading the store, writing and checking files, Delta are others'. The page of the format is
docs/formats.md, "Archive".
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from pipeline.archived import ArchiveError, Commit, Draft, ManifestDamaged, State, applied, decode_state, encode_state

DIRECTORY: Final = "_holdfast"
STATE_EVERY: Final = 100

Step = Callable[[str], None]
"""Called before each step by its name; tests end the process there."""


def nothing(_: str) -> None:
    """The steps when nobody watches them."""


class Manifest:
    """The commits of one archive. For one thread; other processes may commit at any time."""

    def __init__(self, root: Path) -> None:
        self._directory = root / DIRECTORY
        self._state = State()

    def load(self) -> State:
        """The state now; reads only what is new since the last call."""
        state = self._state
        if not state.number:
            state = self._newest_state() or state
        while True:
            data = self._read(state.number + 1)
            if data is not None:
                state = applied(state, Commit.decode(data, f"{state.number + 1:08}.json"), data)
                continue
            later = [number for number in self.numbers() if number > state.number]
            if not later:
                break
            # Unless it was made just now.
            if later[0] > state.number + 1:
                raise ManifestDamaged(f"commit {state.number + 1} is missing in {self._directory}, while there is commit {later[0]}")
        self._state = state
        return state

    def commit(self, state: State, draft: Draft, step: Step = nothing) -> State | None:
        """The state after the draft was committed upon ``state``; None when somebody else has committed meanwhile. Durable on return."""
        commit = Commit(state.number + 1, state.chain, draft)
        data = commit.encode()
        after = applied(state, commit, data)
        temporary = self._directory / f"part-{draft.run}-{commit.number:08}.json"
        try:
            self._directory.mkdir(exist_ok=True)
            write_synced(temporary, data)
            step("linking the commit")
            try:
                os.link(temporary, self._directory / f"{commit.number:08}.json")
            except FileExistsError:
                # A network file system may have done it, lost the answer, and done it again.
                if self._read(commit.number) != data:
                    return None
            step("syncing the commit")
            sync_directory(self._directory)
        except OSError as error:
            raise ArchiveError(f"commit {commit.number} cannot be written to {self._directory}: {error.strerror or error}") from error
        finally:
            temporary.unlink(missing_ok=True)
        step("after the commit")
        self._state = after
        if after.number % STATE_EVERY == 0:
            self._write_state(after)
        return after

    def at(self, number: int) -> State:
        """The state that commit ``number`` led to."""
        state = State()
        while state.number < number:
            data = self._read(state.number + 1)
            if data is None:
                raise ManifestDamaged(f"commit {state.number + 1} is missing in {self._directory}")
            state = applied(state, Commit.decode(data, f"{state.number + 1:08}.json"), data)
        return state

    def commits(self, after: int) -> Iterable[Commit]:
        """Those with greater numbers, in order; each checked against the one before, as far as that is asked for, too."""
        for number in range(after + 1, self.load().number + 1):
            data = self._read(number)
            if data is None:
                raise ManifestDamaged(f"commit {number} is missing in {self._directory}")
            yield Commit.decode(data, f"{number:08}.json")

    def check_all(self) -> State:
        """The state from the first commit on, without trust in what was summed up. Raises ManifestDamaged."""
        state = State()
        for number in self.numbers():
            data = self._read(state.number + 1)
            if data is None:
                raise ManifestDamaged(f"commit {state.number + 1} is missing in {self._directory}, while there is commit {number}")
            state = applied(state, Commit.decode(data, f"{state.number + 1:08}.json"), data)
            path = self._directory / f"state-{state.number:08}.json"
            if path.exists() and path.read_bytes() != encode_state(state):
                raise ManifestDamaged(f"{path} is not what the commits up to it come to")
        return state

    def numbers(self) -> list[int]:
        return sorted(int(name[:8]) for name in self._names() if re.fullmatch(r"\d{8}\.json", name))

    def _names(self) -> list[str]:
        try:
            return os.listdir(self._directory)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ArchiveError(f"{self._directory} cannot be read: {error.strerror}") from error

    def _read(self, number: int) -> bytes | None:
        try:
            return (self._directory / f"{number:08}.json").read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ArchiveError(f"commit {number} in {self._directory} cannot be read: {error.strerror}") from error

    def _newest_state(self) -> State | None:
        """The newest that fits its commit; one that does not is passed over, since the commits say the same."""
        names = sorted((name for name in self._names() if re.fullmatch(r"state-\d{8}\.json", name)), reverse=True)
        for name in names:
            try:
                state = decode_state((self._directory / name).read_bytes(), name)
            except (ManifestDamaged, OSError):
                continue
            data = self._read(state.number)
            if data is not None and hashlib.sha256(data).hexdigest() == state.chain:
                return state
        return None

    def _write_state(self, state: State) -> None:
        """The same bytes whoever writes it, so it does not matter who."""
        path = self._directory / f"state-{state.number:08}.json"
        temporary = path.with_name(f"part-{os.getpid()}-{path.name}")
        try:
            write_synced(temporary, encode_state(state))
            os.replace(temporary, path)
        except OSError:
            temporary.unlink(missing_ok=True)  # reading takes longer without it, and that is all


def write_synced(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def write_new(path: Path, data: bytes) -> bool:
    """Whole, or not at all, and only when there is no such file yet; whether it was this one. The directory is for the caller to sync."""
    temporary = path.with_name(f"part-{secrets.token_hex(6)}-{path.name}")
    try:
        write_synced(temporary, data)
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    return True


def sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
