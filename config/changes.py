"""What differs between the configuration in force and one that was read again, and what becomes of each difference.

Decides only; who reads, writes and tells the processes is `actors.reload`.

Always holds: a configuration in force differs from that of the broker's start in settings that may change while it runs, and in no
other. So every process that is started on its way has the same value for the others, whatever the file says by then.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ValidationError

from config.dump import literal
from config.fields import Effect
from config.load import ConfigError
from config.schema import Config
from config.settings import BRIDGES, LISTENERS, ZONES, plain, settings_in, value_at
from config.values import Bind

_SHARDS = "durable_storage.messages.n_shards"
_WHILE_RUNNING: tuple[Effect, ...] = ("at once", "with the next generation")


@dataclass(frozen=True, slots=True)
class Change:
    """One setting that differs."""

    key: str
    before: str
    """As a file writes it; so is `after`. `unset` where there is none."""
    after: str
    effect: Effect

    def __str__(self) -> str:
        return f"{self.key}: {self.before} -> {self.after}"


@dataclass(frozen=True, slots=True)
class Changes:
    """All that differs, in the order of the page of settings, and the configuration that is in force with it."""

    config: Config
    found: tuple[Change, ...]

    @property
    def applied(self) -> list[Change]:
        return [change for change in self.found if change.effect in _WHILE_RUNNING]

    @property
    def at_next_start(self) -> list[Change]:
        return [change for change in self.found if change.effect == "at the next start"]


def changes(running: Config, wanted: Config, n_shards: int) -> Changes:
    """`n_shards`: of the store. Raises ConfigError when something differs that is fixed, or when what can change now cannot be without
    what can only change at the next start."""
    found: list[Change] = []
    for key, setting in (settings_in(running) | settings_in(wanted)).items():
        before, after = _value(running, key), _value(wanted, key)
        if isinstance(before, Bind) and isinstance(after, Bind):
            after = _with_port_of(before, after)
        if before != after and not (key == _SHARDS and {before, after} <= {"auto", n_shards}):
            # A zone or listener as a whole comes and goes with the broker; a bridge with its table.
            there = BRIDGES.name_in(key) is not None or (_has_table(running, key) and _has_table(wanted, key))
            effect = setting.effect if there else "at the next start"
            found.append(Change(key, _said(n_shards if key == _SHARDS else before), _said(after), effect))
    if fixed := [change for change in found if change.effect == "never, fixed"]:
        what = "is not possible: the store was made with"
        raise ConfigError([f"{each.key} = {each.after} {what} {each.before}, and that is fixed for ever." for each in fixed])
    merged = running.model_dump(mode="python")
    asked = wanted.model_dump(mode="python")
    now = [change.key for change in found if change.effect in _WHILE_RUNNING]
    for key in now:
        if BRIDGES.name_in(key) is None:
            _put(merged, asked, key)
    merged["bridges"] = asked["bridges"]
    try:
        return Changes(Config.model_validate(merged), tuple(found))
    except ValidationError:
        later = ", ".join(change.key for change in found if change.effect == "at the next start")
        raise ConfigError([f"{', '.join(now)} cannot change before {later or 'something else'} does: restart the broker."]) from None


def _put(tree: dict[str, object], source: dict[str, object], key: str) -> None:
    *parents, name = key.split(".")
    for parent in parents:
        below, beside = tree[parent], source[parent]
        assert isinstance(below, dict) and isinstance(beside, dict)
        tree, source = below, beside
    tree[name] = source[name]


def _value(config: Config, key: str) -> object:
    """None where this configuration has no such zone or listener."""
    return value_at(config, key) if _has_table(config, key) else None


def _has_table(config: Config, key: str) -> bool:
    """Whether the zone, listener or bridge is there that this setting belongs to; of all others: yes."""
    zone, listener, bridge = ZONES.name_in(key), LISTENERS.name_in(key), BRIDGES.name_in(key)
    if bridge is not None:
        return bridge in config.bridges
    return (zone is None or zone in config.zones) and (listener is None or listener in config.listeners.named)


def _with_port_of(before: Bind, after: Bind) -> Bind:
    """Any free port was asked for, and one was taken: that is still what is wanted."""
    return before if after.port == 0 and after.host == before.host else after


def _said(value: object) -> str:
    return "unset" if value is None else literal(plain(value))
