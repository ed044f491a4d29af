"""A configuration of what a file may say, without asking which of it is built yet."""

from __future__ import annotations

from config.load import ConfigError, _leaves, _unknown, _validated
from config.schema import Config
from config.settings import setting_of


def given(**tables: object) -> Config:
    """Raises ConfigError, as `config.load.load`."""
    values = {one.key: one for one in _leaves(tables, "", "a test")}
    problems = [_unknown(one) for key, one in values.items() if setting_of(key) is None]
    if problems:
        raise ConfigError(problems)
    config = _validated(values, problems)
    if config is None:
        raise ConfigError(problems)
    return config
