"""Broken files under RocksDB: for each kind of damage, what opens, what is said, and that nothing is ever quietly less or other."""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from rocksdict import Rdict

from shards import salvage, suspects
from shards.backends import OnDamage
from shards.engine import HOME_FAMILY, StoreDamaged, index_of
from shards.engine_rocks import RocksEngine
from shards.options import StoreOptions
from shards.salvage import open_store
from shards.store import GenerationDamaged, GenerationDropped, Store
from tests.shards import damage
from tests.shards.damage import CURRENT, Hurt, Made, log_of, read_all

LAYOUTS = ("pagestream", "skipstream", "record_batch", "wildcard_optimized")
SEALED = 1
FILE_HURTS = {"missing": damage.missing, "empty": damage.empty, "short": damage.short, "footer": damage.footer}


@pytest.fixture(scope="module", params=LAYOUTS)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    return damage.make(tmp_path_factory.mktemp("made"), request.param)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return damage.make(tmp_path_factory.mktemp("one"), "skipstream")


class Opened:
    def __init__(self, path: Path, on_damage: OnDamage = "salvage") -> None:
        self.engine = open_store(str(path), on_damage)
        try:
            self.store = Store.open(self.engine, StoreOptions(thresholds=(100, 2)), salvage=on_damage == "salvage")
        except BaseException:
            self.engine.close()
            raise
        self.said = " | ".join(self.engine.damage_found)

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.close()

    def sessions(self) -> list[bytes]:
        return [key for key, _ in self.engine.scan(HOME_FAMILY, b"x", b"y", 1 << 20)]


def copy(source: Path, to: Path) -> Path:
    return Path(shutil.copytree(source, to))


def content(path: Path) -> dict[str, bytes]:
    """What RocksDB keeps there, without its notes for people and what opening alone leaves."""
    return {file.name: file.read_bytes() for file in path.iterdir() if file.suffix in (".sst", ".log") or file.name[:3] in ("MAN", "CUR")}


def refused(path: Path, on_damage: OnDamage) -> str:
    with pytest.raises(StoreDamaged) as raised:
        Opened(path, on_damage)
    assert str(path) in str(raised.value) and "\n" not in str(raised.value)
    return str(raised.value)


# ---------------------------------------------------------------------------------------------------- data files


@pytest.mark.parametrize("hurt", FILE_HURTS.values(), ids=FILE_HURTS)
def test_a_sealed_generation_with_a_broken_file_is_put_aside_and_the_rest_is_served(made: Made, tmp_path: Path, hurt: Hurt) -> None:
    # Property: salvage serves all other generations and the sessions whole, names the file, keeps what there is of it, and says
    # at every later opening that the generation is lost; strict refuses, naming the file, and changes nothing.
    path = copy(made.closed, tmp_path / "store")
    (name,) = made.tables[SEALED]
    hurt(path / name)
    before = content(path)
    assert name in refused(path, "strict")
    assert content(path) == before
    for opening in range(2):
        with Opened(path) as opened:
            assert (name in opened.said) == (opening == 0)
            assert opened.store.lost_at_open == (SEALED,)
            assert {g: read_all(opened.store, g) for g in (2, 3)} == {g: made.wanted[g] for g in (2, 3)}
            assert len(opened.sessions()) == 3 * damage.PER_GENERATION
            with pytest.raises(GenerationDropped):
                opened.store.generation_of(1)
    kept = path / "quarantine" / "g1" / name
    assert kept.exists() == (hurt is not damage.missing)
    with Opened(path, "strict") as opened:
        assert opened.store.lost_at_open == (SEALED,), "what was put aside is settled"


def with_an_index(path: Path, generation: int) -> str:
    """The one data file of the index that this generation has from now on."""
    engine = RocksEngine(str(path))
    engine.create_family(index_of(generation))
    engine.write([(index_of(generation), b"page %d" % number, b"entries" * 20) for number in range(50)])
    engine.close()
    engine = RocksEngine(str(path))
    (name,) = engine.tables(index_of(generation))
    engine.close()
    return name


@pytest.mark.parametrize("generation", [SEALED, CURRENT])
@pytest.mark.parametrize("hurt", FILE_HURTS.values(), ids=FILE_HURTS)
def test_an_index_with_a_broken_file_goes_alone(one: Made, tmp_path: Path, hurt: Hurt, generation: int) -> None:
    # Property: it is derived from the messages, so nothing is lost, not even where its generation could not go.
    path = copy(one.closed, tmp_path / "store")
    name = with_an_index(path, generation)
    hurt(path / name)
    assert name in refused(path, "strict")
    for opening in range(2):
        with Opened(path) as opened:
            assert (f"the index of generation {generation} is put aside" in opened.said and name in opened.said) == (opening == 0)
            assert not opened.store.lost_at_open and not opened.engine.has_family(index_of(generation))
            assert {g: read_all(opened.store, g) for g in (1, 2, 3)} == one.wanted
    assert (path / "quarantine" / f"i{generation}" / name).exists() == (hurt is not damage.missing)


def test_an_index_whose_file_was_met_broken_goes_at_the_next_opening(one: Made, tmp_path: Path) -> None:
    # Property: until then the generation is not read, as ever; from then on it is.
    path = copy(one.closed, tmp_path / "store")
    name = with_an_index(path, SEALED)
    suspects.note(str(path), f"get: Corruption: block checksum mismatch in {path / name}")
    with Opened(path) as opened:
        assert "the index of generation 1 is put aside" in opened.said and not opened.engine.has_family(index_of(SEALED))
        assert {g: read_all(opened.store, g) for g in (1, 2, 3)} == one.wanted


def test_an_index_does_not_outlive_a_generation_that_is_put_aside(one: Made, tmp_path: Path) -> None:
    # Property: one that is made again under the same number begins with none.
    path = copy(one.closed, tmp_path / "store")
    with_an_index(path, SEALED)
    (name,) = one.tables[SEALED]
    damage.short(path / name)
    with Opened(path) as opened:
        assert opened.store.lost_at_open == (SEALED,) and not opened.engine.has_family(index_of(SEALED))
    assert not [name for name in Rdict.list_cf(str(path)) if name.startswith("i")]


def test_a_generation_whose_family_was_made_twice_is_put_aside_as_any_other(tmp_path: Path) -> None:
    # Property: what RocksDB calls the family is not what it is called usually, and its files are kept where people look for them.
    made = damage.make(tmp_path, "skipstream", twice=True)
    assert sorted(Rdict.list_cf(str(made.closed)))[:2] == ["default", "g1.2"]
    (name,) = made.tables[SEALED]
    damage.short(made.closed / name)
    for opening in range(2):
        with Opened(made.closed) as opened:
            assert (name in opened.said) == (opening == 0) and opened.store.lost_at_open == (SEALED,)
            assert {g: read_all(opened.store, g) for g in (2, 3)} == {g: made.wanted[g] for g in (2, 3)}
    assert (made.closed / "quarantine" / "g1" / name).exists()


@pytest.mark.parametrize("family", [HOME_FAMILY, CURRENT])
@pytest.mark.parametrize("hurt", FILE_HURTS.values(), ids=FILE_HURTS)
def test_sessions_and_the_newest_messages_are_never_thrown_away(one: Made, tmp_path: Path, hurt: Hurt, family: int) -> None:
    # Property: both settings refuse with a sentence that names the file, and nothing is changed.
    path = copy(one.closed, tmp_path / "store")
    name = one.tables[family][0]
    hurt(path / name)
    before = content(path)
    for on_damage in ("strict", "salvage", "salvage"):
        assert name in refused(path, on_damage)
        assert content(path) == before


def test_a_damaged_block_of_a_sealed_generation_costs_that_generation_and_no_process(made: Made, tmp_path: Path) -> None:
    # Property: reading it raises a named error, every time; the others are served; the next opening puts it aside.
    path = copy(made.closed, tmp_path / "store")
    (name,) = made.tables[SEALED]
    damage.in_a_value(path / name)
    with Opened(path) as opened:
        assert opened.said == ""
        with contextlib.suppress(GenerationDamaged):
            assert read_all(opened.store, SEALED) == [], "its streams are not named any more"
        for _ in range(2):
            with pytest.raises(GenerationDamaged, match=name):
                opened.store.read_range(b"#", [(SEALED, b"")], 0, 9)
        assert len(opened.store.damage_met) == 1 and name in next(iter(opened.store.damage_met))
        assert {g: read_all(opened.store, g) for g in (2, 3)} == {g: made.wanted[g] for g in (2, 3)}
        assert opened.store.idle_work(1 << 40) in (True, False)
        opened.store.check()
    assert name in refused(path, "strict")
    with Opened(path) as opened:
        assert name in opened.said and opened.store.lost_at_open == (SEALED,)
        assert {g: read_all(opened.store, g) for g in (2, 3)} == {g: made.wanted[g] for g in (2, 3)}
        assert (path / "quarantine" / "g1" / name).exists()
    with Opened(path, "strict") as opened:
        assert opened.said == ""


def test_strict_lets_a_damaged_block_through_to_whoever_reads(one: Made, tmp_path: Path) -> None:
    # Property: the shell ends the process on StoreDamaged; nothing is given up.
    path = copy(one.closed, tmp_path / "store")
    damage.in_a_value(path / one.tables[SEALED][0])
    with Opened(path, "strict") as opened, pytest.raises(StoreDamaged):
        read_all(opened.store, SEALED)


def test_a_damaged_block_of_the_current_generation_costs_reads_only(one: Made, tmp_path: Path) -> None:
    # Property: what can be read of it is served, writing goes on over restarts, and compacting does not meet the damage.
    path = copy(one.closed, tmp_path / "store")
    engine = RocksEngine(str(path))
    store = Store.open(engine, StoreOptions("skipstream", (100, 2)))
    for position in range(200, 3000):
        ops: list[tuple[int, bytes, bytes | None]] = []
        store.append(ops, store.key_of(b"b/%d" % (position % 2)), position, random.randbytes(300))
        engine.write([*store.take_growth(), *ops])
    engine.close()
    name = max(file.name for file in path.glob("*.sst") if file.stat().st_size > 300_000)
    damage.in_the_middle(path / name)
    with Opened(path) as opened:
        with pytest.raises(GenerationDamaged, match=name):
            read_all(opened.store, CURRENT)
        assert [info.id for info in opened.store.currents()] == [CURRENT]
    for _ in range(2):
        with Opened(path) as opened:
            assert name in opened.said and opened.store.lost_at_open == ()
            for position in range(5):
                opened.engine.write([(CURRENT, b"zz%d" % position, b"v")])
                opened.engine._rdicts[CURRENT].flush(True)
            assert read_all(opened.store, 2) == one.wanted[2]


# ---------------------------------------------------------------------------------------------------- manifest and CURRENT


@pytest.mark.parametrize("text", [None, b"", b"\xff\x00", b"MANIFEST-\n", b"MANIFEST-000009", b"MANIFEST-999999\n"])
def test_a_broken_current_is_written_anew_when_there_is_one_manifest(one: Made, tmp_path: Path, text: bytes | None) -> None:
    # Property: never a new empty store over an old one: it is mended, said, and whole; strict refuses and changes nothing.
    path = copy(one.closed, tmp_path / "store")
    (path / "CURRENT").unlink() if text is None else (path / "CURRENT").write_bytes(text)
    before = content(path)
    refused(path, "strict")
    assert content(path) == before
    with Opened(path) as opened:
        assert "CURRENT" in opened.said
        assert {g: read_all(opened.store, g) for g in one.wanted} == one.wanted


def test_a_choice_of_manifests_is_not_guessed(one: Made, tmp_path: Path) -> None:
    # Property: two manifests and no CURRENT, or none at all, is refused in both settings.
    path = copy(one.closed, tmp_path / "store")
    (path / "CURRENT").unlink()
    shutil.copy(next(path.glob("MANIFEST-*")), path / "MANIFEST-000999")
    assert "2 manifests" in refused(path, "salvage")
    for manifest in path.glob("MANIFEST-*"):
        manifest.unlink()
    assert "0 manifests" in refused(path, "salvage")
    refused(path, "strict")


@pytest.mark.parametrize("hurt", [damage.empty, damage.short, damage.in_the_middle, damage.last_byte])
def test_a_broken_manifest_refuses(one: Made, tmp_path: Path, hurt: Hurt) -> None:
    # Property: nobody knows then which files are the store: one sentence naming it, in both settings.
    path = copy(one.closed, tmp_path / "store")
    hurt(next(path.glob("MANIFEST-*")))
    for on_damage in ("strict", "salvage"):
        assert "MANIFEST" in refused(path, on_damage)


# ---------------------------------------------------------------------------------------------------- the write-ahead log


def test_damage_in_the_middle_of_the_log_gives_the_store_before_it_and_says_how_much_is_lost(made: Made, tmp_path: Path) -> None:
    # Property: a prefix of the records, sealed generations whole, the log kept; strict refuses before anything is read away.
    path = copy(made.crashed, tmp_path / "store")
    log = log_of(path)
    damage.in_the_middle(log)
    before = content(path)
    assert log.name in refused(path, "strict")
    assert content(path) == before
    with Opened(path) as opened:
        found = read_all(opened.store, CURRENT)
        assert 0 < len(found) < damage.PER_GENERATION and found == made.wanted[CURRENT][: len(found)]
        assert len(opened.sessions()) == 2 * damage.PER_GENERATION + len(found)
        assert {g: read_all(opened.store, g) for g in (1, 2)} == {g: made.wanted[g] for g in (1, 2)}
        assert log.name in opened.said and "operations" in opened.said
        assert (path / "quarantine" / log.name).read_bytes() == before[log.name]
    with Opened(path, "strict") as opened:
        assert opened.said == ""


def test_a_damaged_log_that_data_files_are_ahead_of_refuses(one: Made, tmp_path: Path) -> None:
    # Property: there is no moment to which all of the store could go back; the sentence names the logs.
    path = copy(one.closed, tmp_path / "made")
    engine = RocksEngine(str(path))
    for number in range(50):
        engine.write([(HOME_FAMILY, b"y%d" % number, b"v" * 100), (CURRENT, b"zz%d" % number, b"v" * 100)])
    engine._rdicts[CURRENT].flush(True)
    left = copy(path, tmp_path / "store")
    engine.close()
    log = max(left.glob("*.log"), key=lambda file: file.stat().st_size)
    damage.in_the_middle(log)
    for on_damage in ("strict", "salvage"):
        assert log.name in refused(left, on_damage)


@pytest.mark.parametrize("cut", [1, 5, 100])
def test_a_torn_end_of_the_log_is_no_damage(one: Made, tmp_path: Path, cut: int) -> None:
    # Property: both settings open with a prefix that lacks at most the last record.
    for on_damage in ("strict", "salvage"):
        path = copy(one.crashed, tmp_path / on_damage)
        log = log_of(path)
        log.write_bytes(log.read_bytes()[:-cut])
        with Opened(path, on_damage) as opened:
            assert read_all(opened.store, CURRENT) == one.wanted[CURRENT][:-1]
            assert not (path / "quarantine").exists()


def test_a_last_record_that_cannot_be_read_is_said(one: Made, tmp_path: Path) -> None:
    # Property: it may be of an unsynced write, so even strict opens; it may be an acknowledged one, so it is not passed over.
    path = copy(one.crashed, tmp_path / "store")
    damage.last_byte(log_of(path))
    with Opened(path) as opened:
        assert read_all(opened.store, CURRENT) == one.wanted[CURRENT][:-1]
        assert "operations" in opened.said
    path = copy(one.crashed, tmp_path / "again")
    damage.last_byte(log_of(path))
    Opened(path, "strict").__exit__()


def test_a_missing_log_is_said(one: Made, tmp_path: Path) -> None:
    # Property: RocksDB would open as if there had been nothing in it.
    path = copy(one.crashed, tmp_path / "store")
    for log in path.glob("*.log"):
        log.unlink()
    assert "log" in refused(path, "strict")
    with Opened(path) as opened:
        assert "no write-ahead log" in opened.said
        assert read_all(opened.store, 2) == one.wanted[2]


# ---------------------------------------------------------------------------------------------------- killed meanwhile


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.needs("interpreted")
@pytest.mark.parametrize("step", ["_keep", "_put_aside", "_logs_cut", "_careful"])
@pytest.mark.parametrize("before", [True, False])
def test_salvage_that_is_killed_is_done_again(one: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, before: bool) -> None:
    # Property: killed before or after any step, the next opening serves the same, and still has the pieces and the words.
    path = copy(one.crashed, tmp_path / "store")
    log = log_of(path)
    damage.in_the_middle(log)
    name = one.tables[SEALED][-1]
    damage.short(path / name)
    real = getattr(salvage, step)

    def killed(*arguments: object) -> None:
        if not before:
            real(*arguments)
        raise Killed

    monkeypatch.setattr(salvage, step, killed)
    with pytest.raises(Killed):
        open_store(str(path))
    monkeypatch.setattr(salvage, step, real)
    with Opened(path) as opened:
        assert opened.store.lost_at_open == (SEALED,)
        assert read_all(opened.store, 2) == one.wanted[2]
        found = read_all(opened.store, CURRENT)
        assert 0 < len(found) < damage.PER_GENERATION and found == one.wanted[CURRENT][: len(found)]
        if step != "_careful" and (before or step != "_logs_cut"):
            assert log.name in opened.said
        assert (path / "quarantine" / log.name).exists() and (path / "quarantine" / "g1" / name).exists()


# ---------------------------------------------------------------------------------------------------- whatever comes


@pytest.mark.slow
def test_a_store_that_is_whole_says_nothing(made: Made, tmp_path: Path) -> None:
    # Property: no false alarm, in either setting, closed or killed, twice in a row, and from a checkpoint.
    for source in (made.closed, made.crashed):
        for on_damage in ("strict", "salvage", "salvage"):
            path = copy(source, tmp_path / f"{source.name}-{on_damage}-{random.random()}")
            for _ in range(2):
                with Opened(path, on_damage) as opened:
                    assert opened.said == "" and opened.store.damage_met == {}
                    assert {g: read_all(opened.store, g) for g in made.wanted} == made.wanted
    path = copy(made.crashed, tmp_path / "store")
    with Opened(path) as opened:
        opened.engine.checkpoint(str(tmp_path / "checkpoint"))
    with Opened(tmp_path / "checkpoint", "strict") as opened:
        assert opened.said == ""
    assert list(path.glob("quarantine/*")) == []


def _damages(path: Path, chance: random.Random) -> Iterator[str]:
    files = sorted(file for file in path.iterdir() if file.stat().st_size and file.name not in ("LOCK", "LOG"))
    for _ in range(chance.choice((1, 1, 2))):
        file = chance.choice(files)
        data = bytearray(file.read_bytes())
        kind = chance.choice(("flip", "flip", "zeros", "noise"))
        at = chance.randrange(len(data))
        length = 1 if kind == "flip" else min(len(data) - at, chance.choice((8, 512, 4096)))
        new = (
            bytes(length)
            if kind == "zeros"
            else chance.randbytes(length)
            if kind == "noise"
            else bytes((data[at] ^ 1 << chance.randrange(8),))
        )
        data[at : at + length] = new
        file.write_bytes(data)
        yield f"{kind} of {length} at {at} in {file.name}"


@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_damaged_nothing_is_quietly_less_and_nothing_other(one: Made, tmp_path: Path, seed: int) -> None:
    # Property: refused with a sentence, or every generation is whole, or a prefix or an error with something said about it.
    chance = random.Random(seed)
    path = copy(chance.choice((one.closed, one.crashed)), tmp_path / "store")
    story = " and ".join(_damages(path, chance))
    sentence, opened = "", None
    try:
        opened = Opened(path)
    except StoreDamaged as error:
        sentence = str(error)
    if opened is None:
        assert str(path) in sentence, story
        assert refused(path, "salvage"), "and again"
        return
    with opened:
        whole = True
        try:
            rows = opened.sessions()
        except StoreDamaged:
            return
        for generation, wanted in one.wanted.items():
            try:
                found = read_all(opened.store, generation)
            except GenerationDropped:
                whole = False
                continue
            if found != wanted:
                whole = False
                assert generation == CURRENT or found == [], story
                assert found == wanted[: len(found)], story
        whole = whole and len(rows) == 3 * damage.PER_GENERATION
        assert whole or opened.said or opened.store.damage_met, story
