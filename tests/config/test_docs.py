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
