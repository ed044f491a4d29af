"""Rules and passwords on their way from files to processes: what is good comes into force, what is wrong changes nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import structlog

from access.bundle import Bundle
from access.identity import ANONYMOUS, Identity
from access.rights import Right
from access.rules import CLOSED, OPEN, Access
from actors.access.keeping import AccessKeeper
from actors.access.publishing import NAME, NOTHING_ALLOWED, passwords_path, publish, read_bundle
from actors.access.sources import SETTLED_NS, rules_source
from actors.access.watch import AccessWatch
from actors.alarms import read_alarms
from actors.reload import reload, wait_until_taken
from actors.snapshot import Watched, confirm
from actors.topology import Topology, write_whole
from config.dump import dump_json
from config.load import ConfigError
from config.schema import Config
from tests.actors.places import topology_in
from tests.actors.test_reload import Started
from tests.config.given import given


@pytest.fixture(autouse=True)
def _logs() -> Iterator[None]:
    before = structlog.get_config()
    with structlog.testing.capture_logs():
        yield
    structlog.configure(**before)


def rules_for(topic: str) -> str:
    return f'version = 1\n[[rule]]\nallow = ["publish"]\ntopics = ["{topic}"]\n'


class Place:
    """A run directory, a file of rules, a password file, and the configuration that names them."""

    def __init__(self, directory: Path) -> None:
        self.rules, self.users = directory / "rules.toml", directory / "users"
        self.rules.write_text(rules_for("a"))
        self.config = given(access={"rules": str(self.rules)})
        self.topology = self.topology_of(directory, self.config)
        self.run_dir = self.topology.run_dir

    @staticmethod
    def topology_of(directory: Path, config: Config) -> Topology:
        topology = replace(topology_in(directory), config_json=dump_json(config))
        write_whole(topology.run_dir / "topology.json", topology.to_json())
        return topology

    def with_users(self, text: str = "ann:$7$101$AAAAAAAAAAAAAAAA$" + "A" * 86 + "==\n") -> None:
        self.users.write_text(text)
        self.users.chmod(0o600)
        self.config = given(access={"rules": str(self.rules), "password": {"file": str(self.users)}})


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def may(access: Access, topic: bytes) -> bool:
    profile = access.profile(ANONYMOUS, b"c", "tcp", "127.0.0.1")
    return profile is None or profile.may(Right.PUBLISH, topic)


# ---------------------------------------------------------------------- publishing


def test_what_the_files_say_is_in_force_and_a_version_has_one_content(place: Place) -> None:
    """Published again without a difference, nothing is written."""
    first = publish(place.run_dir, place.config)
    assert first == Bundle(1, rules_for("a")) == read_bundle(place.run_dir)
    written = (place.run_dir / NAME).stat()
    assert publish(place.run_dir, place.config) == first and (place.run_dir / NAME).stat().st_mtime_ns == written.st_mtime_ns
    assert written.st_mode & 0o777 == 0o600
    place.rules.write_text(rules_for("b"))
    assert publish(place.run_dir, place.config) == Bundle(2, rules_for("b"))


def test_what_a_configuration_says_besides_is_in_it(place: Place) -> None:
    """Claims of tokens, and a plugin that decides; a plugin that is not there decides nothing."""
    assert publish(place.run_dir, given(access={"jwt": {"grants": "acl"}})) == Bundle(1, None, claims=True)
    plugin = {"kind": "holdfast", "plugins": ["a:B"], "decides": True}
    assert publish(place.run_dir, given(access={"plugin": plugin})) == Bundle(2, None, decides=True)
    assert publish(place.run_dir, given()) == Bundle(3)


def test_the_password_file_in_force_is_a_copy_that_only_its_user_may_read(place: Place) -> None:
    """A gateway that starts while the file is being written finds a whole one; an older copy is gone."""
    place.with_users()
    first = publish(place.run_dir, place.config)
    copy = passwords_path(place.run_dir, first)
    assert copy.read_bytes() == place.users.read_bytes() and copy.stat().st_mode & 0o777 == 0o600
    place.with_users("")
    second = publish(place.run_dir, place.config)
    assert second.password_sha256 != first.password_sha256 and not copy.exists()
    assert passwords_path(place.run_dir, second).read_bytes() == b""
    place.users.write_text("ann:plain\n")
    third = publish(place.run_dir, place.config)
    assert (third.version, third.password_sha256) == (second.version, second.password_sha256) and len(third.problems) == 1
    assert passwords_path(place.run_dir, third).read_bytes() == b""
    assert publish(place.run_dir, given()).password_sha256 == "" and not list(place.run_dir.glob("passwords-*"))


def test_one_file_that_is_wrong_does_not_hold_the_other_up(place: Place) -> None:
    """A user who has to go goes, whatever is wrong with the rules."""
    place.with_users()
    publish(place.run_dir, place.config)
    place.rules.write_text("version = 2")
    place.with_users("")
    found = publish(place.run_dir, place.config)
    assert found.rules_text == rules_for("a") and found.version == 2
    assert [problem.partition(":")[0] for problem in found.problems] == ["access.rules"]


def test_rules_of_which_none_were_ever_good_allow_nothing(place: Place) -> None:
    """Neither as a first bundle, nor where there were no rules before."""
    place.rules.write_text("")
    found = publish(place.run_dir, place.config)
    assert found.rules_text == NOTHING_ALLOWED and found.problems and not may(found.access(), b"a")
    (place.run_dir / NAME).unlink()
    assert publish(place.run_dir, given()) == Bundle(1)
    assert not may(publish(place.run_dir, place.config).access(), b"a")


def test_a_file_that_looks_the_same_is_not_read_again(place: Place) -> None:
    """Looking is what the controller does ten times a second. A file that has just changed is read, as it may change again unseen."""
    source, path = rules_source(), str(place.rules)
    assert source.look(path).data == place.rules.read_bytes() and source.changed(path)
    source.now_ns = lambda: time.time_ns() + SETTLED_NS
    assert source.changed(path)
    source.look(path)
    assert not source.changed(path) and source.look(path) is source.look(path)
    place.rules.write_text(rules_for("b"))
    assert source.changed(path) and source.look(path).data == rules_for("b").encode()
    place.rules.unlink()
    assert source.changed(path) and source.look(path).problem


# ---------------------------------------------------------------------- the controller


def test_the_controller_keeps_up_with_the_files_and_tells_what_is_wrong(place: Place) -> None:
    """The alarm is there for as long as the file is wrong, and the former rules with it."""
    keeper = AccessKeeper(place.topology, "controller-0", Watched(place.topology))
    keeper.publish()
    assert read_bundle(place.run_dir) == Bundle(1, rules_for("a")) and read_alarms(place.run_dir) == []
    place.rules.write_text("version = 1\n[[rule]]\nalow = 1\n")
    keeper.publish()
    (alarm,) = read_alarms(place.run_dir)
    assert alarm.name == "controller-0" and str(place.rules) in alarm.cause and "rule 1: unknown key 'alow'" in alarm.cause
    kept = read_bundle(place.run_dir)
    assert kept is not None and (kept.version, kept.rules_text) == (1, rules_for("a"))
    place.rules.write_text(rules_for("b"))
    keeper.publish()
    assert read_alarms(place.run_dir) == [] and read_bundle(place.run_dir) == Bundle(2, rules_for("b"))


def test_an_alarm_does_not_outlive_its_cause_when_the_controller_died_meanwhile(place: Place) -> None:
    """The next one takes it away."""
    place.rules.write_text("")
    AccessKeeper(place.topology, "controller-0", Watched(place.topology)).publish()
    assert len(read_alarms(place.run_dir)) == 1
    place.rules.write_text(rules_for("b"))
    AccessKeeper(place.topology, "controller-0", Watched(place.topology)).publish()
    assert read_alarms(place.run_dir) == []


def test_where_nothing_is_configured_nothing_is_written(tmp_path: Path) -> None:
    """A broker without rules has no bundle, and its processes know that none is wanted."""
    topology = Place.topology_of(tmp_path, Config())
    AccessKeeper(topology, "controller-0", Watched(topology)).publish()
    assert not (topology.run_dir / NAME).exists()


# ---------------------------------------------------------------------- processes


class Told:
    def __init__(self, run_dir: Path) -> None:
        self.all: list[tuple[int, Access]] = []
        self.watch = AccessWatch(run_dir, lambda bundle, access: self.all.append((bundle.version, access)), every_ms=1)

    async def until(self, found: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not found():  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    @property
    def access(self) -> Access:
        return self.all[-1][1]


async def test_a_process_has_the_rules_when_it_has_started_and_each_later_version(place: Place) -> None:
    """It is told on its loop, once for each version; other problems are no version."""
    publish(place.run_dir, place.config)
    told = Told(place.run_dir)
    await told.watch.start()
    assert len(told.all) == 1 and may(told.access, b"a") and not may(told.access, b"b")
    place.rules.write_text("nonsense")
    publish(place.run_dir, place.config)
    place.rules.write_text(rules_for("b"))
    publish(place.run_dir, place.config)
    await told.until(lambda: len(told.all) > 1)
    assert [version for version, _ in told.all] == [1, 2] and may(told.access, b"b") and not may(told.access, b"a")
    told.watch.stop()


async def test_without_a_bundle_a_process_allows_nothing_where_rules_are_wanted(place: Place) -> None:
    """Until there is one."""
    told = Told(place.run_dir)
    await told.watch.start()
    assert told.all == [(0, CLOSED)]
    publish(place.run_dir, place.config)
    await told.until(lambda: len(told.all) > 1)
    assert may(told.access, b"a")
    told.watch.stop()


async def test_without_a_bundle_a_process_allows_everything_where_nothing_is_configured(tmp_path: Path) -> None:
    """And goes by the first bundle that comes."""
    topology = Place.topology_of(tmp_path, Config())
    told = Told(topology.run_dir)
    await told.watch.start()
    assert told.all == [(0, OPEN)]
    (tmp_path / "rules.toml").write_text(rules_for("a"))
    publish(topology.run_dir, given(access={"rules": str(tmp_path / "rules.toml")}))
    await told.until(lambda: len(told.all) > 1)
    assert not may(told.access, b"b")
    told.watch.stop()


BROKEN = {
    "empty": "",
    "truncated": Bundle(2, rules_for("b")).to_json()[:-9],
    "another form": '{"version": 2}',
    "wrong type": Bundle(2, rules_for("b")).to_json().replace('"claims": false', '"claims": 0'),
    "rules that are none": Bundle(2, "version = 3").to_json(),
    "not UTF-8": "\udcff",
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("started", [False, True])
async def test_a_bundle_that_cannot_be_read_changes_nothing(place: Place, text: str, started: bool) -> None:
    """At a start it leaves a process with nothing allowed; in one that runs, with what it had. The next good one counts."""
    if started:
        publish(place.run_dir, place.config)
    told = Told(place.run_dir)
    if started:
        await told.watch.start()
    (place.run_dir / NAME).write_bytes(text.encode(errors="surrogateescape"))
    if started:
        await told.watch._look()
        assert [version for version, _ in told.all] == [1]
    else:
        await told.watch.start()
        assert told.all == [(0, CLOSED)]
    write_whole(place.run_dir / NAME, Bundle(7, rules_for("c")).to_json())
    await told.until(lambda: told.all[-1][0] == 7)
    assert may(told.access, b"c")
    told.watch.stop()


def test_a_process_that_cannot_be_told_what_is_wanted_allows_nothing(tmp_path: Path) -> None:
    """Its run directory has no topology."""
    told = Told(tmp_path)

    async def start() -> None:
        await told.watch.start()
        told.watch.stop()

    asyncio.run(start())
    assert told.all == [(0, CLOSED)]


# ---------------------------------------------------------------------- reload


def test_reload_puts_rules_in_force_at_once(tmp_path: Path) -> None:
    """Also where the configuration did not change, and also where it names rules for the first time."""
    started = Started(tmp_path)
    rules = tmp_path / "rules.toml"
    rules.write_text(rules_for("a"))
    assert not reload(started.run_dir).files
    started.file.write_text(f'[access]\nrules = "{rules}"\n')
    first = reload(started.run_dir)
    assert [change.key for change in first.changes.applied] == ["access.rules"] and first.files
    assert read_bundle(started.run_dir) == Bundle(1, rules_for("a"))
    rules.write_text(rules_for("b"))
    second = reload(started.run_dir)
    assert second.files and not second.changes.found and read_bundle(started.run_dir) == Bundle(2, rules_for("b"))
    assert not reload(started.run_dir).files
    started.file.write_text("")
    assert reload(started.run_dir).files and read_bundle(started.run_dir) == Bundle(3)


def test_a_reload_with_rules_that_are_wrong_changes_nothing(tmp_path: Path) -> None:
    """Neither rules nor settings; one sentence names the file and the rule."""
    started = Started(tmp_path)
    rules = tmp_path / "rules.toml"
    rules.write_text('version = 1\n[[rule]]\nallow = ["pubish"]\ntopics = ["a"]\n')
    started.file.write_text(f'access.rules = "{rules}"\nlog.level = "debug"\n')
    with pytest.raises(ConfigError) as caught:
        reload(started.run_dir)
    (problem,) = caught.value.problems
    assert problem.startswith(f"access.rules: {rules}: rule 1: 'pubish' in `allow`") and problem.endswith(".")
    assert read_bundle(started.run_dir) is None and not (started.run_dir / "settings.json").exists()


async def test_reload_waits_for_gateways_to_go_by_the_rules(tmp_path: Path) -> None:
    """When it returns, a right that was taken away is gone; a gateway that is away is named."""
    started = Started(tmp_path)
    (tmp_path / "rules.toml").write_text(rules_for("a"))
    started.file.write_text(f'access.rules = "{tmp_path / "rules.toml"}"\n')
    reloaded = reload(started.run_dir)
    for name in ("shard-0", "session-0", "gateway-0"):
        confirm(started.run_dir, name, reloaded.version)
    assert wait_until_taken(reloaded, within=0) == ["gateway-0"]
    watch = AccessWatch(started.run_dir, lambda _bundle, _access: None, name="gateway-0")
    await watch.start()
    watch.stop()
    assert wait_until_taken(reloaded, within=0) == []


async def test_a_process_goes_on_looking_whatever_went_wrong_once(place: Place) -> None:
    """It would go by old rules for ever otherwise."""
    publish(place.run_dir, place.config)
    told: list[int] = []

    def taken(bundle: Bundle, _access: Access) -> None:
        told.append(bundle.version)
        if bundle.version == 2:
            raise ValueError("whatever")

    watch = AccessWatch(place.run_dir, taken, every_ms=1)
    await watch.start()
    for topic in ("b", "c"):
        place.rules.write_text(rules_for(topic))
        version = publish(place.run_dir, place.config).version
        async with asyncio.timeout(60):
            while version not in told:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
    watch.stop()
    assert told == [1, 2, 3]


def test_a_pipeline_identity_is_no_exception() -> None:
    """What nobody allowed stays forbidden to tokens of the reader as well."""
    assert CLOSED.profile(Identity("pipeline/x", "pipeline"), b"", "", "") is not None
