"""The file of rules: TOML, read as a whole or refused as a whole, with one sentence that names the rule.

What a rule says, where no client is in sight yet; docs/access.md has the words.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from reprlib import Repr
from typing import Any, Final, TypeVar

from access.decide import Bound
from access.placeholders import Template, TemplateError, Values, parse_template
from access.rights import Right
from access.subjects import (
    EVERYBODY,
    Caller,
    Subject,
    SubjectError,
    names_of,
    parse_how,
    parse_listener,
    parse_name,
    parse_network,
)

VERSION: Final = 1
TEXT_BYTES_MAX: Final = 4 * 1024 * 1024
RULES_MAX: Final = 10_000
FILTERS_MAX: Final = 64
PUBLISHING: Final = Right.PUBLISH | Right.RETAIN | Right.DELAY
READING: Final = Right.SUBSCRIBE | Right.SHARE | Right.REPLAY
_SHOWN_MAX: Final = 80
_WORDS: Final = {
    "publish": PUBLISHING,
    "subscribe": READING,
    "all": PUBLISHING | READING,
    "retain": Right.RETAIN,
    "delay": Right.DELAY,
    "share": Right.SHARE,
    "replay": Right.REPLAY,
}
_SHORT: Final = Repr()
_SHORT.maxstring = _SHORT.maxother = _SHOWN_MAX
_Value = TypeVar("_Value")


class WordError(ValueError):
    """What was wanted in the place of a word, as the rest of a sentence."""


class RulesError(ValueError):
    """One sentence: what was found and what was wanted."""


@dataclass(frozen=True, slots=True)
class Rule:
    allow: bool
    rights: Right
    topics: tuple[Template, ...]
    subject: Subject = EVERYBODY
    unless: Subject | None = None

    @property
    def names(self) -> frozenset[str]:
        """Of the placeholders in it."""
        return frozenset([name for topic in self.topics for name in topic.names])

    def fits(self, caller: Caller) -> bool:
        """Whether it is about this one; in doubt it is when it denies, and is not when it allows."""
        if not self.subject.fits(caller, doubt=not self.allow):
            return False
        return self.unless is None or not self.unless.fits(caller, doubt=self.allow)

    def bind(self, values: Values) -> Bound:
        filled = [topic.fill(values, self.allow) for topic in self.topics]
        return Bound(self.allow, int(self.rights), tuple([levels for levels in filled if levels is not None]))


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Raises RulesError."""
    tables = _tables(text)
    if unknown := tables.keys() - {"version", "rule"}:
        raise RulesError(f"unknown key {_shown(min(unknown))}, wanted are `version` and tables `[[rule]]`")
    version = tables.get("version")
    if type(version) is not int or version != VERSION:
        found = "`version` is missing" if version is None else f"`version` is {_shown(version)}"
        raise RulesError(f"{found}, wanted is `version = {VERSION}`")
    rules = tables.get("rule", [])
    if type(rules) is not list or any(type(each) is not dict for each in rules):
        raise RulesError("`rule` is no list of tables, each rule begins with a line `[[rule]]`")
    if len(rules) > RULES_MAX:
        raise RulesError(f"{len(rules)} rules, at most {RULES_MAX} are allowed")
    return tuple([_rule(number, table) for number, table in enumerate(rules, 1)])


def _tables(text: str) -> dict[str, Any]:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise RulesError(f"character {error.start} has no UTF-8, a file of rules is UTF-8") from None
    if size > TEXT_BYTES_MAX:
        raise RulesError(f"{size} bytes, at most {TEXT_BYTES_MAX} are allowed")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RulesError(f"not TOML: {str(error)[:1].lower()}{str(error)[1:]}") from None
    except RecursionError:
        raise RulesError("not a file of rules: values within values, deeper than any rule has them") from None


def _rule(number: int, table: Mapping[str, Any]) -> Rule:
    where = f"rule {number}: "
    if unknown := table.keys() - {"allow", "deny", "topics", "unless", *_SUBJECT}:
        raise RulesError(f"{where}unknown key {_shown(min(unknown))}, known are allow, deny, topics, unless, {', '.join(_SUBJECT)}")
    if ("allow" in table) == ("deny" in table):
        raise RulesError(f"{where}{'both of' if 'allow' in table else 'neither of'} `allow` and `deny`, one of them is wanted")
    allow = "allow" in table
    rights = _each(where, "allow" if allow else "deny", table, _right)
    topics = _each(where, "topics", table, parse_template)
    if len(topics) > FILTERS_MAX:
        raise RulesError(f"{where}{len(topics)} topics, at most {FILTERS_MAX} are allowed")
    unless = _unless(where, table["unless"]) if "unless" in table else None
    return Rule(allow, reduce(or_, rights), topics, _subject(where, table), unless)


def _unless(where: str, table: Any) -> Subject:
    if type(table) is not dict or not table:
        raise RulesError(f"{where}`unless` is {_shown(table)}, wanted is a table with at least one of {', '.join(_SUBJECT)}")
    if unknown := table.keys() - _SUBJECT.keys():
        raise RulesError(f"{where}unknown key {_shown(min(unknown))} in `unless`, known are {', '.join(_SUBJECT)}")
    return _subject(f"{where}unless: ", table)


def _subject(where: str, table: Mapping[str, Any]) -> Subject:
    given = {key: collected(_each(where, key, table, read)) for key, (read, collected) in _SUBJECT.items() if key in table}
    return Subject(**given)


def _each(where: str, key: str, table: Mapping[str, Any], read: Callable[[str], _Value]) -> tuple[_Value, ...]:
    """The values of a list of texts that is there and not empty."""
    texts = table.get(key)
    if type(texts) is not list or not texts:
        found = "is missing" if key not in table else f"is {_shown(texts)}"
        raise RulesError(f"{where}`{key}` {found}, wanted is a list with at least one text")
    values = []
    for text in texts:
        if type(text) is not str:
            raise RulesError(f"{where}{_shown(text)} in `{key}`, wanted are texts")
        try:
            values.append(read(text))
        except (TemplateError, SubjectError, WordError) as error:
            raise RulesError(f"{where}{_shown(text)} in `{key}`: {error}") from None
    return tuple(values)


def _right(word: str) -> Right:
    if word not in _WORDS:
        raise WordError(f"no right of that name, known are {', '.join(_WORDS)}")
    return _WORDS[word]


_SUBJECT: Final[Mapping[str, tuple[Callable[[str], Any], Callable[[Iterable[Any]], Any]]]] = {
    "users": (parse_name, names_of),
    "groups": (parse_name, names_of),
    "client_ids": (parse_name, names_of),
    "listeners": (parse_listener, frozenset),
    "networks": (parse_network, tuple),
    "how": (parse_how, frozenset),
}
"""Of each key: what reads one value, and what is made of all."""


def _shown(value: object) -> str:
    """Short, however much and however deep it is."""
    text = _SHORT.repr(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."
