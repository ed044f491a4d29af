"""Keys of EMQX: those that are called otherwise here are taken, those that mean nothing are left, and each is said."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.main import app
from config.elsewhere import NOTHING_HERE, RENAMED
from config.load import ConfigError, load_with_sources
from config.schema import Config
from config.settings import all_settings, setting_of, value_at

LAYOUT = "durable_storage.messages.layout"
BUFFER = "durable_storage.messages.local_write_buffer"


def test_the_write_buffer_is_taken_below_layout_too(tmp_path: Path) -> None:
    """Where EMQX's pages have it; what is given later wins, under whichever name."""
    file = tmp_path / "a.toml"
    file.write_text(f"[{LAYOUT}.local_write_buffer]\nmax_items = 7\nflush_interval = '20ms'\n")
    loaded = load_with_sources(file, environ={})
    buffer = loaded.config.durable_storage.messages.local_write_buffer
    assert (buffer.max_items, buffer.flush_interval.ms) == (7, 20)
    assert loaded.sources == {f"{BUFFER}.max_items": str(file), f"{BUFFER}.flush_interval": str(file)}
    assert loaded.notices[0] == (
        f"{LAYOUT}.local_write_buffer.max_items = 7 (from {file}) is taken for {BUFFER}.max_items, which is its name here."
    )
    later = load_with_sources(file, sets=[f"{BUFFER}.max_items=9"], environ={}).config
    assert later.durable_storage.messages.local_write_buffer.max_items == 9


@pytest.mark.parametrize("key", RENAMED)
def test_every_key_with_another_name_is_checked_as_that(key: str) -> None:
    """A mistake is said of the key that there is."""
    assert setting_of(key) is None and setting_of(RENAMED[key]) is not None
    with pytest.raises(ConfigError, match=RENAMED[key].replace(".", r"\.")):
        load_with_sources(sets=[f"{key}=[]"], environ={})


@pytest.mark.parametrize("key", NOTHING_HERE)
@pytest.mark.parametrize("below", ["", ".x", ".x.y"])
def test_every_key_without_a_meaning_changes_nothing_and_is_said(key: str, below: str) -> None:
    """Whatever its value; of a section also what is in it."""
    loaded = load_with_sources(sets=[f"{key}{below}=7"], environ={})
    assert loaded.config == Config() and loaded.sources == {}
    assert loaded.notices == (f"{key}{below} = 7 (from --set) does nothing here: {NOTHING_HERE[key]}.",)


def test_no_setting_of_ours_is_among_them() -> None:
    """Or below one of them."""
    assert not [known for known in all_settings() for key in NOTHING_HERE if known == key or known.startswith(f"{key}.")]


def test_a_section_that_is_empty_is_said_once(tmp_path: Path) -> None:
    """It is there, so somebody meant something by it."""
    file = tmp_path / "a.toml"
    file.write_text("[durable_storage.messages.transaction]\n[durable_storage.timers.rocksdb]\ncache_size = '8MB'\n")
    loaded = load_with_sources(file, environ={})
    assert loaded.config == Config() and [notice.split(" ")[0] for notice in loaded.notices] == [
        "durable_storage.messages.transaction", "durable_storage.timers.rocksdb.cache_size",
    ]  # fmt: skip


def test_what_nobody_knows_is_still_refused() -> None:
    """And so is what would promise something that is not kept."""
    for sets in ("durable_sessions.hartbeat_interval=1", "durable_storage.messages.replication_factor=3", "durable_storage.n_sites=3"):
        with pytest.raises(ConfigError):
            load_with_sources(sets=[sets], environ={})


def test_variables_of_emqx_are_not_read_and_that_is_said() -> None:
    """Those that stand for a setting; others are somebody else's business."""
    environ = {
        "EMQX_DURABLE_SESSIONS__BATCH_SIZE": "7",
        "EMQX_DURABLE_STORAGE__MESSAGES__ROCKSDB__CACHE_SIZE": "8MB",
        "EMQX_DURABLE_STORAGE__MESSAGES__POLL_BATCH_SIZE": "7",
        "EMQX_NODE__NAME": "emqx@127.0.0.1",
        "EMQX_HOME": "/opt/emqx",
    }
    loaded = load_with_sources(environ=environ)
    assert loaded.config == Config()
    first, third, second = loaded.notices
    assert first.startswith("The environment variable EMQX_DURABLE_SESSIONS__BATCH_SIZE is not read: its name here is HOLDFAST__DURABLE_S")
    assert second.endswith("its name here is HOLDFAST__DURABLE_STORAGE__MESSAGES__BLOCK_CACHE.")
    assert "POLL_BATCH_SIZE does nothing here: a shard answers polls at once" in third
    assert value_at(load_with_sources(environ={"HOLDFAST__DURABLE_SESSIONS__BATCH_SIZE": "7"}).config, "durable_sessions.batch_size") == 7


@pytest.mark.parametrize("words", [["config", "check"], ["config", "show", "--changed"]])
def test_commands_say_it_on_standard_error(words: list[str]) -> None:
    """So that scripts read what they always read; the configuration is good."""
    result = CliRunner().invoke(app, [*words, "--set", "mqtt.retry_interval=30s"])
    assert (result.exit_code, result.stderr.count("mqtt.retry_interval"), "mqtt.retry_interval" in result.stdout) == (0, 1, False)


def test_the_doctor_notes_it(tmp_path: Path) -> None:
    """Nobody is hurt by it."""
    tmp_path.chmod(0o700)
    result = CliRunner().invoke(app, ["doctor", "--data-dir", str(tmp_path), "--set", "mqtt.retry_interval=30s"])
    assert "note  configuration: mqtt.retry_interval" in result.stdout
