"""Cases of those who are no clients of MQTT: a token of the pipeline that writes by APPEND, or reads by SCAN.

Each has a topic of its own, and somebody of MQTT on the other side. What says so is a rule of the file about the token, or its filters in
the configuration, which are its claims. A token that is revoked is used on the connection on which it was shown, or on another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Final

from tests.access_paths.cases import MARK

VERBS: Final = ("APPEND", "SCAN")
WHENS: Final = ("allowed", "denied", "revoked", "revoked while away")
FORMS: Final = ("name", "beginning", "listener", "unless", "placeholder", "claim")


@dataclass(frozen=True, slots=True)
class Bulk:
    number: int
    verb: str
    when: str
    form: str

    @property
    def name(self) -> str:
        return f"t{self.number}-x"

    @property
    def token(self) -> str:
        return f"a token of a test, number {self.number}"

    @property
    def client(self) -> str:
        """Of the other side."""
        return f"b-{self.number}-x"

    @property
    def topic(self) -> str:
        return f"bulk/{self.number}/{f'pipeline%2F{self.name}' if self.form == 'placeholder' else 'x'}"

    @property
    def topic_filter(self) -> str:
        return f"bulk/{self.number}/#"

    def mark(self, which: str) -> bytes:
        """A before the change, B behind it."""
        return MARK + f"bulk-{self.number}-{which}.".encode()

    def denied(self, changed: bool) -> bool:
        return self.when == "denied" or (changed and self.when.startswith("revoked"))

    def rule(self) -> str:
        """What denies it; nothing for a claim, as in cases.py."""
        if self.form == "claim":
            return ""
        right = "publish" if self.verb == "APPEND" else "subscribe"
        about = {
            "name": f"users = ['pipeline/{self.name}']",
            "beginning": f"users = ['pipeline/{self.name[:-1]}*']",
            "listener": "listeners = ['pipeline']",
            "unless": "unless = { how = ['anonymous'] }",
            "placeholder": "how = ['pipeline']",
        }[self.form]
        topic = f"bulk/{self.number}/${{user}}" if self.form == "placeholder" else self.topic_filter
        return f"[[rule]]\ndeny = ['{right}']\ntopics = ['{topic}']\n{about}\n"

    def entry(self, changed: bool) -> str:
        """Its token in the configuration."""
        claimed = "elsewhere/#" if self.form == "claim" and self.denied(changed) else self.topic_filter
        digest = hashlib.sha256(self.token.encode()).hexdigest()
        return f"{{name = '{self.name}', sha256 = '{digest}', filters = ['{claimed}'], write = true}}"

    def wanted(self) -> Iterator[bytes]:
        """Marks that come to the reader."""
        if self.when != "denied":
            yield self.mark("A")
        if self.when == "allowed":
            yield self.mark("B")

    def __str__(self) -> str:
        return f"case b{self.number}: {self.verb} {self.when} by {self.form}"


def bulk_cases() -> list[Bulk]:
    return [Bulk(number, *row) for number, row in enumerate(product(VERBS, WHENS, FORMS), start=1)]


def write_configuration(file: Path, of: Sequence[Bulk], changed: bool) -> None:
    """The file of a broker's settings: its tokens, and that all is kept that one of them may want to read."""
    captured = ", ".join([f"'{case.topic_filter}'" for case in of if case.verb == "SCAN"])
    tokens = ", ".join([case.entry(changed) for case in of])
    file.write_text(f"durable_storage.messages.capture = [{captured}]\npipeline.tokens = [{tokens}]\n")
