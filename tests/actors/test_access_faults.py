"""Whatever is wrong with the files of access: nobody gets a right by it, what was in force goes on, and one sentence says what it is.

Each fault three times: at a start, in a broker that runs, and by `holdfast reload`.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import structlog

from access.identity import ANONYMOUS
from access.rights import Right
from access.rules_file import RULES_MAX, TEXT_BYTES_MAX
from actors.access import publishing
from actors.access.keeping import AccessKeeper
from actors.access.publishing import passwords_path, publish, read_bundle
from actors.access.sources import FileRefused, read_regular
from actors.alarms import read_alarms
from actors.reload import reload
from actors.snapshot import Watched
from actors.topology import write_whole
from config.dump import dump_json
from config.load import ConfigError
from tests.actors.test_reload import Started
from tests.config.given import given

GOOD = 'version = 1\n[[rule]]\nallow = ["publish"]\ntopics = ["a"]\n'
USERS = "ann:$7$101$AAAAAAAAAAAAAAAA$" + "A" * 86 + "==\n"
RULE = '[[rule]]\nallow = ["publish"]\ntopics = ["b"]\n'


@pytest.fixture(autouse=True)
def _logs() -> Iterator[None]:
    before = structlog.get_config()
    with structlog.testing.capture_logs():
        yield
    structlog.configure(**before)


def text(data: str | bytes) -> Callable[[Path], None]:
    return lambda path: void(path.write_bytes(data if isinstance(data, bytes) else data.encode()))


def mode(bits: int) -> Callable[[Path], None]:
    return lambda path: path.chmod(bits)


def void(_: object) -> None:
    """For what is done and says something."""


def instead(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def harm(path: Path) -> None:
        path.unlink()
        make(path)

    return harm


ANY_FILE: dict[str, tuple[Callable[[Path], None], str]] = {
    "missing": (Path.unlink, "No such file"),
    "a directory": (instead(Path.mkdir), "is no file"),
    "a pipe": (instead(os.mkfifo), "is no file"),
    "a device": (instead(lambda path: path.symlink_to("/dev/zero")), "is no file"),
    "a link to nothing": (instead(lambda path: path.symlink_to("nowhere")), "No such file"),
    "a link to itself": (instead(lambda path: path.symlink_to(path)), "Too many levels"),
    "everybody may write to it": (mode(0o602), "everybody may"),
}
RULES: dict[str, tuple[Callable[[Path], None], str]] = {
    **ANY_FILE,
    "empty": (text(""), "`version` is missing"),
    "blanks only": (text("\n \n"), "`version` is missing"),
    "truncated in a word": (text(GOOD[:-3]), "not TOML"),
    "truncated in a rule": (text(GOOD[: GOOD.index("topics")]), "`topics` is missing"),
    "not TOML": (text("rule = ["), "not TOML"),
    "no UTF-8": (text(b"\xff"), "no UTF-8 at byte 0"),
    "a byte order mark": (text(b"\xef\xbb\xbf" + GOOD.encode()), "not TOML"),
    "a zero byte": (text(GOOD + "\0"), "not TOML"),
    "too large": (text("#" * (TEXT_BYTES_MAX + 1)), "has more than"),
    "too many rules": (text("version = 1\nrule = [" + "{}," * (RULES_MAX + 1) + "]"), "at most 10000"),
    "deeper than anything": (text("version = 1\nrule = " + "[" * 5000), "not"),
    "version of later": (text(GOOD.replace("1", "2")), "`version` is 2"),
    "version of another type": (text(GOOD.replace("1", "true")), "`version` is True"),
    "unknown key above": (text("x = 1\n" + GOOD), "unknown key 'x'"),
    "unknown key in a rule": (text(GOOD + "x = 1"), "rule 1: unknown key 'x'"),
    "rule is no list": (text("version = 1\n[rule]\n"), "each rule begins with a line"),
    "neither allow nor deny": (text('version = 1\n[[rule]]\ntopics = ["a"]'), "neither of"),
    "allow and deny": (text(GOOD + 'deny = ["all"]'), "both of"),
    "unknown right": (text(GOOD.replace("publish", "write")), "no right of that name"),
    "rights are a text": (text(GOOD.replace('["publish"]', '"publish"')), "wanted is a list"),
    "no topics": (text(GOOD.replace('["a"]', "[]")), "at least one text"),
    "topics are numbers": (text(GOOD.replace('["a"]', "[1]")), "wanted are texts"),
    "a topic that is none": (text(GOOD.replace('["a"]', '["a/#/b"]')), "'a/#/b' in `topics`"),
    "a shared filter": (text(GOOD.replace('["a"]', '["$share/g/a"]')), "in `topics`"),
    "unknown placeholder": (text(GOOD.replace('["a"]', '["${clientid}"]')), "in `topics`"),
    "placeholder that does not end": (text(GOOD.replace('["a"]', '["${user"]')), "in `topics`"),
    "two placeholders in a level": (text(GOOD.replace('["a"]', '["${user}${user}"]')), "in `topics`"),
    "too many topics": (text(GOOD.replace('["a"]', str(["a"] * 65).replace("'", '"'))), "at most 64"),
    "a lone star": (text(GOOD + 'users = ["*"]'), "in `users`"),
    "a star within": (text(GOOD + 'users = ["a*b"]'), "in `users`"),
    "users are none": (text(GOOD + "users = []"), "at least one text"),
    "a network that is none": (text(GOOD + 'networks = ["10.0.0.0/33"]'), "in `networks`"),
    "an address in a network": (text(GOOD + 'networks = ["10.0.0.1/8"]'), "in `networks`"),
    "unknown way in": (text(GOOD + 'how = ["luck"]'), "in `how`"),
    "unless of nothing": (text(GOOD + "unless = {}"), "`unless`"),
    "unknown key in unless": (text(GOOD + 'unless = { user = ["x"] }'), "unknown key 'user' in `unless`"),
}  # fmt: skip
PASSWORDS: dict[str, tuple[Callable[[Path], None], str]] = {
    **ANY_FILE,
    "everybody may read it": (mode(0o604), "everybody may read it"),
    "plain text": (text("ann:secret\n"), "line 1"),
    "truncated": (text(USERS[:-20]), "line 1"),
    "no colon": (text("ann\n"), "line 1"),
    "no name": (text(USERS[3:]), "line 1"),
    "twice": (text(USERS + USERS), "line 2"),
    "good and bad": (text(USERS + "bob:plain\n"), "line 2"),
    "unknown form": (text("ann:$9$x$y\n"), "line 1"),
    "no UTF-8": (text(b"\xff:x\n"), "line 1"),
    "too dear": (text("ann:$argon2id$v=19$m=1048576,t=3,p=4$AAAAAAAAAAA$" + "A" * 43 + "\n"), "line 1"),
}  # fmt: skip
CASES = [("rules", fault) for fault in RULES] + [("password.file", fault) for fault in PASSWORDS]


class Running(Started):
    """A broker of which only the files are there: with rules, a password file, and both in force."""

    def __init__(self, directory: Path) -> None:
        self.rules, self.users = directory / "rules.toml", directory / "users"
        self.rules.write_text(GOOD)
        self.users.write_text(USERS)
        self.users.chmod(0o600)
        super().__init__(directory, f"access.rules={self.rules}")
        config = given(access={"rules": str(self.rules), "password": {"file": str(self.users)}})
        self.topology = replace(self.topology, config_json=dump_json(config))
        write_whole(self.run_dir / "topology.json", self.topology.to_json())
        self.good = publish(self.run_dir, config)
        assert not self.good.problems
        self.keeper = AccessKeeper(self.topology, "controller-0", Watched(self.topology))

    def harm(self, what: str, fault: str) -> str:
        """What has to be said of it."""
        do, said = (RULES if what == "rules" else PASSWORDS)[fault]
        do(self.rules if what == "rules" else self.users)
        return said


def may(bundle_of: Path, topic: bytes) -> bool:
    bundle = read_bundle(bundle_of)
    assert bundle is not None
    profile = bundle.access().profile(ANONYMOUS, b"c", "tcp", "127.0.0.1")
    return profile is None or profile.may(Right.PUBLISH, topic)


@pytest.mark.parametrize(("what", "fault"), CASES, ids=[f"{what} {fault}" for what, fault in CASES])
def test_in_a_broker_that_runs_a_fault_changes_nothing(tmp_path: Path, what: str, fault: str) -> None:
    """By itself and by a reload; the alarm and the command say the same sentence, without any secret; what is mended counts."""
    running = Running(tmp_path)
    said = running.harm(what, fault)
    running.keeper.publish()
    (alarm,) = read_alarms(running.run_dir)
    assert said in alarm.cause and alarm.cause.startswith(f"access.{what}: ") and len(alarm.cause) < 600 and "\n" not in alarm.cause
    assert may(running.run_dir, b"a") and not may(running.run_dir, b"b")
    found = read_bundle(running.run_dir)
    assert found is not None and (found.version, found.password_sha256) == (running.good.version, running.good.password_sha256)
    assert passwords_path(running.run_dir, found).read_text() == USERS
    assert "secret" not in alarm.cause
    if what == "rules":
        with pytest.raises(ConfigError) as caught:
            reload(running.run_dir)
        (problem,) = caught.value.problems
        assert said in problem and problem.endswith(".") and "Traceback" not in problem
    mend(running)
    running.keeper.publish()
    assert read_alarms(running.run_dir) == [] and may(running.run_dir, b"b") and not may(running.run_dir, b"a")


def mend(running: Running) -> None:
    for path in (running.rules, running.users):
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
    running.rules.write_text("version = 1\n" + RULE)
    running.users.write_text(USERS)
    running.users.chmod(0o600)


@pytest.mark.parametrize(("what", "fault"), CASES, ids=[f"{what} {fault}" for what, fault in CASES])
def test_at_a_start_a_fault_puts_nothing_in_force(tmp_path: Path, what: str, fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The launcher says the sentence and starts nobody."""
    running = Running(tmp_path)
    (running.run_dir / publishing.NAME).unlink()
    said = running.harm(what, fault)
    before = sys.argv
    sys.argv = ["publishing", str(running.run_dir)]
    try:
        assert publishing.main() == 1
    finally:
        sys.argv = before
    assert said in capsys.readouterr().out and read_bundle(running.run_dir) is None


@pytest.mark.parametrize("fault", RULES)
def test_where_no_rules_were_ever_good_nothing_is_allowed(tmp_path: Path, fault: str) -> None:
    """A controller that finds no bundle and a file that is wrong."""
    running = Running(tmp_path)
    (running.run_dir / publishing.NAME).unlink()
    running.harm("rules", fault)
    running.keeper.publish()
    assert not may(running.run_dir, b"a") and not may(running.run_dir, b"b") and read_alarms(running.run_dir)


@contextmanager
def no_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_without_descriptors_nothing_changes(tmp_path: Path) -> None:
    """Neither for the controller nor by a read; once there are some again it goes on."""
    running = Running(tmp_path)
    running.rules.write_text("version = 1\n" + RULE)
    with no_descriptors(), pytest.raises(FileRefused, match="Too many open files"):
        read_regular(str(running.rules), 100, 0, "")
    with no_descriptors(), pytest.raises(OSError, match="Too many open files"):
        running.keeper.publish()
    assert may(running.run_dir, b"a")
    running.keeper.publish()
    assert may(running.run_dir, b"b") and read_alarms(running.run_dir) == []


@pytest.mark.slow
def test_a_start_with_rules_that_are_wrong_is_one_sentence_of_the_process(tmp_path: Path) -> None:
    """As the launcher calls it."""
    running = Running(tmp_path)
    running.rules.write_text("version = 9")
    command = [sys.executable, "-P", "-m", "actors.access.publishing", str(running.run_dir)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ}, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout == f"access.rules: {running.rules}: `version` is 9, wanted is `version = 1`"
