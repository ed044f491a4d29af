"""A file of rules and a password file, looked at: what is in them when they are good, or one sentence about what is not."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from access.rules_file import TEXT_BYTES_MAX, RulesError, parse_rules

PASSWORDS_BYTES_MAX: Final = 128 << 20
SETTLED_NS: Final = 1_000_000_000
"""Times of files are that of a tick of the kernel: within one a file may change twice, and look the same."""

Signature = tuple[int, ...]


class FileRefused(Exception):
    """One sentence about one file, without its full stop."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a source found at its last look.  data: when it is good.  problem: when it is not, one sentence."""

    data: bytes = b""
    sha256: str = ""
    problem: str = ""


class Source:
    """One file that may change at any time.  Reads it when it looks different, and judges it when what is in it is different."""

    def __init__(self, key: str, bytes_max: int, forbidden: int, why: str, judge: Callable[[bytes], None]) -> None:
        """key: the setting that names it.  forbidden: permissions that it must not have, which is `why`.  judge: raises FileRefused."""
        self._key = key
        self._bytes_max = bytes_max
        self._forbidden = forbidden
        self._why = why
        self._judge = judge
        self.now_ns: Callable[[], int] = time.time_ns
        """The clock of the times of files."""
        self._path = ""
        self._signature: Signature | None = None
        self._judged: Found | None = None
        self._found = Found()

    def look(self, path: str) -> Found:
        """What is there now."""
        if path != self._path:
            self._path, self._signature, self._judged = path, None, None
        signature = self._signature_of(path)
        if signature is None or signature != self._signature:
            self._found = self._read()
            self._signature = signature
        return self._found

    def changed(self, path: str) -> bool:
        """Whether a look would read the file."""
        return path != self._path or self._signature is None or self._signature_of(path) != self._signature

    def _signature_of(self, path: str) -> Signature | None:
        """What a file looks like from outside; None: it has to be read to know whether it changed."""
        try:
            found = os.stat(path)
        except OSError:
            return None
        # Where the clock was set back, it is read at every look until it has caught up.
        if self.now_ns() - max(found.st_mtime_ns, found.st_ctime_ns) < SETTLED_NS:
            return None
        return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_mode)

    def _read(self) -> Found:
        try:
            data = read_regular(self._path, self._bytes_max, self._forbidden, self._why)
        except FileRefused as error:
            return Found(problem=f"{self._key}: {error}")
        sha256 = hashlib.sha256(data).hexdigest()
        if self._judged is not None and self._judged.sha256 == sha256:
            return self._judged
        try:
            self._judge(data)
        except FileRefused as error:
            self._judged = Found(sha256=sha256, problem=f"{self._key}: {self._path}: {error}")
        else:
            self._judged = Found(data, sha256)
        return self._judged


def rules_source() -> Source:
    why = "everybody may write to it"
    return Source("access.rules", TEXT_BYTES_MAX, stat.S_IWOTH, why, _judge_rules)


def passwords_source() -> Source:
    why = "everybody may read it or write to it, wanted are permissions such as 0600"
    return Source("access.password.file", PASSWORDS_BYTES_MAX, stat.S_IROTH | stat.S_IWOTH, why, _judge_passwords)


def read_regular(path: str, bytes_max: int, forbidden: int, why: str) -> bytes:
    """All of a file that is one.  Raises FileRefused."""
    try:
        # A pipe that nobody writes to would hold whoever opens it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode):
                raise FileRefused(f"{path} is no file")
            if mode & forbidden:
                raise FileRefused(f"{path} is refused: {why}")
            with open(descriptor, "rb", closefd=False) as file:
                data = file.read(bytes_max + 1)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise FileRefused(f"{path} cannot be read: {error.strerror}") from None
    if len(data) > bytes_max:
        raise FileRefused(f"{path} has more than {bytes_max} bytes")
    return data


def _judge_rules(data: bytes) -> None:
    try:
        parse_rules(data.decode())
    except UnicodeDecodeError as error:
        raise FileRefused(f"no UTF-8 at byte {error.start}, a file of rules is UTF-8") from None
    except RulesError as error:
        raise FileRefused(str(error)) from None


def _judge_passwords(data: bytes) -> None:
    # Loaded by those who have a password file, and by nobody else.
    from access.passwords import PasswordFileError, read_password_file

    try:
        read_password_file(data)
    except PasswordFileError as error:
        raise FileRefused(str(error)) from None
