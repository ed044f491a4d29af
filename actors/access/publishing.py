"""Makes the bundle that is in force of the configuration and of the files that it names.

Called when a broker starts (as a process of its own, since the launcher reads no configuration), by the controller when a file looks
different, and by whoever reloads; always under the lock of `actors.snapshot.alone`, for two at a time would make one version of two things.

Always holds: a version of the bundle has one content; what is wrong is in `problems` of it, while the former good one stays in force; rules
that are wanted, and of which none were ever good, are rules that allow nothing.

    python -P -m actors.access.publishing RUN_DIR
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from access.bundle import Bundle
from actors.access.sources import Found, passwords_source, rules_source
from actors.snapshot import alone
from actors.topology import Topology, write_whole, write_whole_bytes
from config.load import from_json
from config.schema import Config

NAME: Final = "access.json"
NOTHING_ALLOWED: Final = "version = 1\n"


@dataclass(frozen=True, slots=True)
class Draft:
    """What would be in force, and what is wrong with what was found: one sentence for each file, without its full stop."""

    bundle: Bundle
    passwords: bytes | None
    """What is in the password file, when there is a good one."""

    @property
    def problems(self) -> tuple[str, ...]:
        return self.bundle.problems


class Publisher:
    """Keeps what it has read, so that a look at what did not change costs nothing."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._rules = rules_source()
        self._passwords = passwords_source()

    def changed(self, config: Config) -> bool:
        """Whether a file looks different than at the last draft."""
        access = config.access
        files = [(self._rules, access.rules), (self._passwords, access.password.file)]
        return any(source.changed(path) for source, path in files if path)

    def draft(self, config: Config) -> Draft:
        """What this configuration and its files come to, beside what is in force; changes nothing."""
        former = read_bundle(self._run_dir)
        access = config.access
        rules = self._rules.look(access.rules) if access.rules else Found()
        passwords = self._passwords.look(access.password.file) if access.password.file else Found()
        wanted = Bundle(
            version=0 if former is None else former.version,
            rules_text=_rules_text(access.rules, rules, former),
            claims=bool(access.jwt.grants),
            decides=access.plugin.kind != "none" and access.plugin.decides,
            password_sha256=_password_sha256(passwords, former),
            problems=tuple([found.problem for found in (rules, passwords) if found.problem]),
        )
        if former is None or replace(wanted, problems=former.problems) != former:
            wanted = replace(wanted, version=wanted.version + 1)
        return Draft(wanted, passwords.data if passwords.sha256 and not passwords.problem else None)

    def put_in_force(self, draft: Draft) -> Bundle:
        bundle = draft.bundle
        if bundle == read_bundle(self._run_dir):
            return bundle
        if draft.passwords is not None:
            write_whole_bytes(passwords_path(self._run_dir, bundle), draft.passwords)
        write_whole(self._run_dir / NAME, bundle.to_json())
        for path in self._run_dir.glob("passwords-*"):
            if path != passwords_path(self._run_dir, bundle):
                path.unlink(missing_ok=True)
        return bundle


def publish(run_dir: Path, config: Config) -> Bundle:
    """What is in force from now on.  For the holder of the lock."""
    publisher = Publisher(run_dir)
    return publisher.put_in_force(publisher.draft(config))


def wrong_files(config: Config) -> tuple[str, ...]:
    """What would keep a broker with this configuration from starting: one sentence for each file, without its full stop."""
    access = config.access
    files = [(rules_source(), access.rules), (passwords_source(), access.password.file)]
    return tuple([found.problem for source, path in files if path for found in [source.look(path)] if found.problem])


def read_bundle(run_dir: Path) -> Bundle | None:
    """What is in force; None: nothing is yet, or nothing that can be read."""
    try:
        return Bundle.from_json((run_dir / NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        # A BundleError is a ValueError, and so is text that is no UTF-8.
        return None


def confirm_bundle(run_dir: Path, name: str, version: int) -> None:
    """This process goes by this version of the bundle."""
    write_whole(run_dir / f"{name}.access", str(version))


def taken_bundle(run_dir: Path, name: str) -> int:
    """The version that a process goes by; 0: none yet."""
    try:
        return int((run_dir / f"{name}.access").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0


def passwords_path(run_dir: Path, bundle: Bundle) -> Path:
    """The password file in force, of a bundle that has one."""
    return run_dir / f"passwords-{bundle.password_sha256[:16]}"


def wants_access(config: Config) -> bool:
    """Whether anything is configured that a bundle has to say something about; without, everybody who came in may do everything."""
    return wants_rules(config) or bool(config.access.password.file)


def wants_rules(config: Config) -> bool:
    access = config.access
    return bool(access.rules or access.jwt.grants or (access.plugin.kind != "none" and access.plugin.decides))


def _rules_text(path: str, found: Found, former: Bundle | None) -> str | None:
    if not path:
        return None
    if not found.problem:
        return found.data.decode()
    kept = None if former is None else former.rules_text
    return NOTHING_ALLOWED if kept is None else kept


def _password_sha256(found: Found, former: Bundle | None) -> str:
    """Of the password file in force; empty: no password is right."""
    if not found.problem:
        return found.sha256
    return "" if former is None else former.password_sha256


def main() -> int:
    """Of a start: what is wrong is one sentence, and nothing is put in force then."""
    run_dir = Path(sys.argv[1])
    topology = Topology.from_json((run_dir / "topology.json").read_text(encoding="utf-8"))
    publisher = Publisher(run_dir)
    with alone(run_dir):
        draft = publisher.draft(from_json(topology.config_json))
        if not draft.problems:
            publisher.put_in_force(draft)
    sys.stdout.write("; ".join(draft.problems))
    return 1 if draft.problems else 0


if __name__ == "__main__":
    sys.exit(main())
