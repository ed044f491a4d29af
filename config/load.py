"""Makes a `Config` from defaults, one TOML file, the environment and the command line, later ones winning.

The only module that reads the environment. Leaves what is allowed to `config.schema`.

Every problem is one sentence that names the key, the value found, where it was found, and what is allowed; all problems
of all sources are reported together.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from config.dump import literal
from config.elsewhere import RENAMED, foreign_variables, nothing_here
from config.fields import CONFLICT
from config.schema import Config
from config.secrets import HIDDEN, Secret, SecretError, read_secret
from config.settings import (
    NAMINGS,
    Naming,
    Setting,
    all_settings,
    is_name,
    named_settings,
    plain,
    section_names,
    setting_of,
    settings_in,
    value_at,
)
from config.unbuilt import is_unbuilt
from config.values import Bind

PREFIX = "HOLDFAST__"
BRIDGES_FILE = "bridges.toml"
"""In the data directory: what `holdfast bridge` and REST have set.  Counts more than the configuration's file."""


class ConfigError(Exception):
    """The configuration cannot be used; each problem is one sentence."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class Given:
    """A value that somebody gave, and where."""

    key: str
    value: object
    source: str
    from_environment: bool = False


@dataclass(frozen=True, slots=True)
class Loaded:
    """The configuration, and for every key that is not left at its default where its value comes from.

    notices: a sentence for each key of EMQX that was taken under another name, or that does nothing here."""

    config: Config
    sources: Mapping[str, str]
    notices: tuple[str, ...] = ()


def load(
    file: Path | None = None,
    *,
    sets: Sequence[str] = (),
    data_dir: str | None = None,
    port: int | None = None,
    environ: Mapping[str, str] | None = None,
) -> Config:
    """The configuration of this node. `data_dir` and `port` are the options --data-dir and --port of the command line."""
    return load_with_sources(file, sets=sets, data_dir=data_dir, port=port, environ=environ).config


def load_with_sources(
    file: Path | None = None,
    *,
    sets: Sequence[str] = (),
    data_dir: str | None = None,
    port: int | None = None,
    environ: Mapping[str, str] | None = None,
    bridges: Path | None = None,
) -> Loaded:
    """As `load`, with the origin of each value.  bridges: the file of what commands set of bridges, where it is not in `data_dir` as seen
    from here."""
    problems: list[str] = []
    given: dict[str, Given] = {}
    around = os.environ if environ is None else environ
    notices = foreign_variables(around)
    from_file = list(_from_file(file, problems)) if file is not None else []
    in_file = len(from_file)
    sources = [
        *from_file,
        *_from_environment(around),
        *_from_sets(sets, problems),
    ]
    if data_dir is not None:
        sources.append(Given("data_dir", data_dir, "--data-dir"))
    if bridges is None:
        bridges = Path(str(next((one.value for one in reversed(sources) if one.key == "data_dir"), "./data"))) / BRIDGES_FILE
    sources[in_file:in_file] = _from_bridges(bridges, problems)
    names = {
        (naming.prefix, name.lower()): name for one in reversed(sources) if not one.from_environment for naming, name in _names_in(one.key)
    }
    for one in sources:
        one = _as_written(one, names) if one.from_environment else one
        found = f"{one.key} = {literal(one.value)} (from {one.source})"
        if (ours := RENAMED.get(one.key)) is not None:
            notices.append(f"{found} is taken for {ours}, which is its name here.")
            one = replace(one, key=ours)
        if setting_of(one.key) is not None:
            given[one.key] = one
        elif (why := nothing_here(one.key)) is not None:
            notices.append(f"{found} does nothing here: {why}.")
        else:
            problems.append(_unknown(one))
    for naming in NAMINGS:
        count = len({name for key in given for name in [naming.name_in(key)] if name is not None})
        if count > naming.count_max:
            things = f"{'further ' if naming.reserved else ''}{naming.noun}s"
            problems.append(f"{count} {things} are not allowed: a configuration takes at most {naming.count_max} {things}.")
    config = _validated(given, problems)
    problems += [
        _refused(_known(key), one, "its default only, until the rest of it is built")
        for key, one in given.items()
        if config is not None and is_unbuilt(key) and value_at(config, key) != _known(key).default
    ]
    if problems:
        raise ConfigError(problems)
    assert config is not None
    if port is not None:
        # The port alone is set from the command line; the address stays that of the file.
        moved = Given("listeners.tcp.bind", _with_port(config.listeners.tcp.bind, port), "--port")
        if not 0 <= port <= 65535:
            raise ConfigError([f"--port {port} is not allowed: it takes a whole number from 0 to 65535."])
        given[moved.key] = moved
        config = _validated(given, problems)
        assert config is not None
    notices += _idle(config, given)
    changed = {key: one.source for key, one in given.items() if value_at(config, key) != _known(key).default}
    return Loaded(config, changed, tuple(notices))


_OF_SEVERAL_SITES = ("cluster.", "register.")


def _idle(config: Config, given: Mapping[str, Given]) -> Iterator[str]:
    """A sentence for each setting that was given and that only several sites have."""
    if config.durable_storage.messages.n_sites > 1:
        return
    for key, one in given.items():
        if key.startswith(_OF_SEVERAL_SITES) and value_at(config, key) != _known(key).default:
            yield f"{key} = {literal(one.value)} (from {one.source}) does nothing while durable_storage.messages.n_sites is 1."


def secrets(config: Config, *, environ: Mapping[str, str] | None = None, known: Mapping[str, bytes] | None = None) -> dict[str, bytes]:
    """What lies at each place that the configuration names, by the place. `known`: what was found at the start, whose
    environment counts and no later one. Raises ConfigError."""
    found: dict[str, bytes] = {}
    problems: list[str] = []
    around = os.environ if environ is None else environ
    for key in settings_in(config):
        place = value_at(config, key)
        if not isinstance(place, Secret) or not place.is_local or place in found:
            continue
        if known is not None and place.startswith("env:") and place in known:
            found[place] = known[place]
            continue
        try:
            found[place] = read_secret(place, around)
        except SecretError as error:
            problems.append(f"{key} = {literal(place)}: {error}.")
    if problems:
        raise ConfigError(problems)
    return found


def environment() -> dict[str, str]:
    """What the environment of this process says of settings: for a later `load` that shall see the same."""
    return {name: value for name, value in os.environ.items() if name.startswith(PREFIX)}


def from_json(text: str) -> Config:
    """What `config.dump.dump_json` wrote: how a configuration travels to other processes."""
    return Config.model_validate_json(text)


def _known(key: str) -> Setting:
    found = setting_of(key)
    assert found is not None, key
    return found


def _names_in(key: str) -> Iterator[tuple[Naming, str]]:
    """The name of the zone or listener that this key belongs to, if it does."""
    for naming in NAMINGS:
        name = naming.name_in(key)
        if name is not None:
            yield naming, name


def _as_written(one: Given, names: Mapping[tuple[str, str], str]) -> Given:
    """With the name of its zone or listener as it is written elsewhere: names of environment variables are all in upper case."""
    for naming, name in _names_in(one.key):
        rest = one.key.removeprefix(f"{naming.prefix}{name}.")
        return replace(one, key=f"{naming.prefix}{names.get((naming.prefix, name), name)}.{rest}")
    return one


def _with_port(bind: Bind, port: int) -> str:
    return f"{bind.rpartition(':')[0]}:{port}"


def _from_file(file: Path, problems: list[str]) -> Iterator[Given]:
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        problems.append(f"{file} cannot be read: {error.strerror}.")
        return
    except UnicodeDecodeError as error:
        problems.append(f"{file} is not UTF-8 at byte {error.start}: a configuration file is TOML.")
        return
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        problems.append(f"{file} is not TOML: {str(error)[:1].lower()}{str(error)[1:]}.")
        return
    yield from _leaves(tables, "", str(file))


def _from_bridges(file: Path, problems: list[str]) -> list[Given]:
    """What commands have set of bridges, and nothing else."""
    try:
        if not file.is_file():
            return []
    except (OSError, ValueError):
        return []  # Whatever stands there as the data directory: who validates it says so.
    found = list(_from_file(file, problems))
    problems += [
        f"{one.key} stands in {file}, which takes settings of bridges only." for one in found if not one.key.startswith("bridges.")
    ]
    return [one for one in found if one.key.startswith("bridges.")]


def _leaves(table: Mapping[str, object], prefix: str, source: str) -> Iterator[Given]:
    for name, value in table.items():
        key = prefix + name
        # A table where a setting is expected stays whole, and is refused as a value.
        if isinstance(value, dict) and setting_of(key) is None:
            if not value and key not in section_names():
                yield Given(key, value, source)
            yield from _leaves(value, key + ".", source)
        else:
            yield Given(key, value, source)


def _from_environment(environ: Mapping[str, str]) -> Iterator[Given]:
    for name in sorted(environ):
        if name.startswith(PREFIX):
            key = name[len(PREFIX) :].lower().replace("__", ".")
            yield Given(key, typed(key, environ[name]), f"the environment variable {name}", True)


def _from_sets(sets: Sequence[str], problems: list[str]) -> Iterator[Given]:
    for text in sets:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            problems.append(f"--set {text} is not allowed: it takes section.key=value, such as --set mqtt.max_inflight=64.")
            continue
        yield Given(key.strip(), typed(key.strip(), value.strip()), "--set")


def typed(key: str, text: str) -> object:
    """Text from outside a file as the file would have it: 5 is a number, true a truth value, 7d a text."""
    setting = setting_of(key)
    if setting is not None and setting.kind in ("text", "bind", "secret"):
        return text
    if setting is not None and setting.kind == "choice" and f'"{text}"' in setting.allowed:
        # The versions of a protocol are words that look like numbers.
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"] if "\n" not in text else text
    except tomllib.TOMLDecodeError:
        return text


def _validated(given: Mapping[str, Given], problems: list[str]) -> Config | None:
    tree: dict[str, object] = {}
    for one in given.values():
        *parents, name = one.key.split(".")
        table: dict[str, object] = tree
        for parent in parents:
            below = table.setdefault(parent, {})
            assert isinstance(below, dict)
            table = below
        table[name] = one.value
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        seen: set[str] = set()
        for detail in error.errors(include_url=False):
            place = [str(part) for part in detail["loc"]]
            allowed = None
            if detail["type"] == CONFLICT:
                place.append(str(detail["ctx"]["key"]))
                allowed = str(detail["ctx"]["allowed"])
            setting = _setting_at(place)
            # One value that fits none of several forms is reported once for each form; one sentence is enough.
            if setting.key not in seen:
                seen.add(setting.key)
                problems.append(_refused(setting, given.get(setting.key), allowed))
        return None


def _setting_at(place: Sequence[str]) -> Setting:
    """The setting at or above a place in the tree; below it are items of a list or the forms of a union."""
    for length in range(len(place), 0, -1):
        found = setting_of(".".join(place[:length]))
        if found is not None:
            return found
    raise AssertionError(f"no setting at {list(place)}")


def _refused(setting: Setting, given: Given | None, allowed: str | None) -> str:
    wanted = f"is not allowed: it takes {allowed or setting.allowed}."
    if given is None:
        default = "nothing" if setting.default is None else literal(plain(setting.default))
        return f"{setting.key} = {default} (from the default) {wanted}"
    shown = HIDDEN if setting.kind == "secret" and given.value else literal(given.value)
    return f"{setting.key} = {shown} (from {given.source}) {wanted}"


def _unknown(given: Given) -> str:
    settings, sections = all_settings(), section_names()
    # Whoever mistyped the name of a secret's place may have given the secret itself.
    secret = any(one.kind == "secret" for one in _alike(given.key))
    found = f"{given.key} = {HIDDEN if secret else literal(given.value)} (from {given.source})"
    for naming in NAMINGS:
        name = given.key.removeprefix(naming.prefix).partition(".")[0]
        if given.key.startswith(naming.prefix) and name not in naming.reserved:
            return _unknown_of(naming, name, given, found)
    if given.key in sections:
        inside = [key.removeprefix(given.key + ".") for key in settings if key.startswith(given.key + ".")]
        return f"{found} is not allowed: {given.key} is a section with the settings {', '.join(inside)}."
    above = given.key.rpartition(".")[0]
    while above and above not in settings and above not in sections:
        above = above.rpartition(".")[0]
    if above in settings:
        return f"{found} is not a setting: nothing is below {above}, which takes {settings[above].allowed}."
    likely = _likely(given.key)
    if likely is not None:
        return f"{found} is not a setting: did you mean {likely}?"
    siblings = [key.removeprefix(above + ".").split(".")[0] for key in settings if key.startswith(above + "." if above else "")]
    siblings += [] if above else ["zones"]
    return f"{found} is not a setting: {above or 'the file'} has {', '.join(dict.fromkeys(siblings))}."


def _unknown_of(naming: Naming, name: str, given: Given, found: str) -> str:
    rest = given.key.removeprefix(f"{naming.prefix}{name}").removeprefix(".")
    inside = [key.removeprefix(naming.template) for key in named_settings(naming)]
    if not is_name(name):
        return f"{found} is not allowed: the name of a {naming.noun} takes 1 to 64 letters, digits, _ and -."
    if not rest or any(key.startswith(rest + ".") for key in inside):
        return f"{found} is not allowed: a {naming.noun} is a section with the settings {', '.join(inside)}."
    close = difflib.get_close_matches(rest, inside, n=1, cutoff=0.6)
    if close:
        return f"{found} is not a setting: did you mean {naming.prefix}{name}.{close[0]}?"
    return f"{found} is not a setting: a {naming.noun} has {', '.join(inside)}."


def _alike(key: str) -> list[Setting]:
    """Settings whose last word is nearly that of this key."""
    word = key.rpartition(".")[2]
    known = {**all_settings(), **{each: one for naming in NAMINGS for each, one in named_settings(naming).items()}}
    return [one for each, one in known.items() if difflib.get_close_matches(word, [each.rpartition(".")[2]], cutoff=0.6)]


def _likely(key: str) -> str | None:
    """The setting that was probably meant: nearly the same key, or the same last word somewhere else."""
    close = difflib.get_close_matches(key, all_settings(), n=1, cutoff=0.8)
    if close:
        return close[0]
    same_name = [known for known in all_settings() if known.rpartition(".")[2] == key.rpartition(".")[2]]
    return same_name[0] if len(same_name) == 1 else None
