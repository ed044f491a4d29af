"""What the processes of a broker are told about access: one text of JSON, replaced as a whole.

Whoever writes it has looked at everything in it (`problems` is what was found wrong with newer files, while these are in force); whoever
reads it looks again, and takes all of it or nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

from access.rules import Access, compile_access
from access.rules_file import parse_rules

_SHA256: Final = re.compile(r"[0-9a-f]{64}|")


class BundleError(ValueError):
    """One sentence: what was found and what was wanted."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """version: grows with each change.  rules_text: the file of rules; None: none is configured, which is not the same as an empty one.
    claims, decides: what else may allow something (access.rules.compile_access).  password_sha256: of the password file in force, or "".
    """

    version: int
    rules_text: str | None = None
    claims: bool = False
    decides: bool = False
    password_sha256: str = ""
    problems: tuple[str, ...] = ()

    def access(self) -> Access:
        """Raises access.rules_file.RulesError."""
        rules = None if self.rules_text is None else parse_rules(self.rules_text)
        return compile_access(self.version, rules, claims=self.claims, decides=self.decides)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Bundle:
        """Raises BundleError."""
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            raise BundleError(f"{len(text)} characters that are no JSON, an access bundle is wanted") from None
        if type(found) is not dict or found.keys() != _FORMS.keys():
            keys = ", ".join(sorted(found)) if type(found) is dict else type(found).__name__
            raise BundleError(f"{keys[:200] or 'nothing'} in an access bundle, wanted are {', '.join(_FORMS)}")
        for name, (is_one, wanted) in _FORMS.items():
            if not is_one(found[name]):
                raise BundleError(f"`{name}` of an access bundle is {repr(found[name])[:80]}, wanted is {wanted}")
        return Bundle(**{**found, "problems": tuple(found["problems"])})


def _is_version(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_rules(value: Any) -> bool:
    return value is None or type(value) is str


def _is_bool(value: Any) -> bool:
    return type(value) is bool


def _is_digest(value: Any) -> bool:
    return type(value) is str and _SHA256.fullmatch(value) is not None


def _is_problems(value: Any) -> bool:
    return type(value) is list and {type(each) for each in value} <= {str}


_FORMS: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    "version": (_is_version, "a whole number from 0 on"),
    "rules_text": (_is_rules, "a text or null"),
    "claims": (_is_bool, "true or false"),
    "decides": (_is_bool, "true or false"),
    "password_sha256": (_is_digest, "64 hexadecimal digits or nothing"),
    "problems": (_is_problems, "a list of texts"),
}
