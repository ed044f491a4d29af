"""docs/configuration.md and the declarations of settings."""

from __future__ import annotations

import pytest

from config import docs
from config.settings import Setting, all_settings


def test_the_page_of_settings_is_current() -> None:
    """docs/configuration.md is what `make docs` would write now."""
    assert docs.PAGE.read_text(encoding="utf-8") == docs.page(), "run `make docs`"


@pytest.mark.parametrize("setting", all_settings().values(), ids=lambda setting: setting.key)
def test_every_setting_says_what_it_takes_in_which_unit_and_why(setting: Setting) -> None:
    """Numbers have a unit, and every text is at least a sentence."""
    assert setting.why.endswith(".")
    assert setting.why[0].isupper()
    assert setting.allowed
    assert setting.unit or setting.kind not in ("whole", "count", "list") or setting.key.endswith("_port")
    assert f"`{setting.key.rpartition('.')[2]}`" in docs.PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("bits", "length"), [(1, "2 µs"), (10, "1.02 ms"), (17, "131 ms"), (20, "1.05 s"), (24, "16.8 s"), (32, "1.19 h"), (64, "one for ever")]
)
def test_an_epoch_is_as_long_as_the_page_says(bits: int, length: str) -> None:
    """2 to the power of epoch_bits, in microseconds; that layouts hold it is in tests/shards/test_layouts_wildcard_optimized.py."""
    assert docs.epoch(bits).startswith(length)
    if bits in docs.EPOCH_BITS:
        assert f"| {bits} | {length}" in docs.page()
