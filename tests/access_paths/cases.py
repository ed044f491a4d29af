"""The matrix: path x whose right x when it goes x how the rule says it x version x gateways; and what must come, and what must not.

A case is a pair of clients of its own with a topic of its own, so that all of them are in one file of rules and in one broker.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

PATHS: Final = ("live 0", "live 1", "live 2", "offline", "resumed 1", "resumed 2", "retained", "shared", "memory", "will")
SIDES: Final = ("reader", "writer")
WHENS: Final = ("allowed", "denied", "revoked", "revoked while away")
FORMS: Final = ("client id", "beginning", "unless", "placeholder")
VERSIONS: Final = (4, 5)
GATEWAYS: Final = ("same", "other")
MEMORY: Final = "memory-"
"""So begin the client ids whose sessions are in memory (a zone of the broker's)."""
STORED: Final = ("offline", "resumed 1", "resumed 2", "memory")
"""Paths of a session that outlives its connection."""
MARK: Final = b"marked-"


@dataclass(frozen=True, slots=True)
class Case:
    number: int
    path: str
    side: str
    when: str
    form: str
    version: int
    gateways: str

    @property
    def reader(self) -> str:
        return f"{MEMORY if self.path == 'memory' else ''}r-{self.number}-x"

    @property
    def writer(self) -> str:
        return f"w-{self.number}-x"

    @property
    def subject(self) -> str:
        """Whose right it is about."""
        return self.reader if self.side == "reader" else self.writer

    @property
    def topic(self) -> str:
        return f"case/{self.number}/{self.subject}"

    @property
    def topic_filter(self) -> str:
        return f"{'$share/g/' if self.path == 'shared' else ''}case/{self.number}/#"

    @property
    def qos(self) -> int:
        return int(self.path[-1]) if self.path[-1].isdigit() else 1

    @property
    def stored(self) -> bool:
        return self.path in STORED

    def mark(self, which: str) -> bytes:
        """A before the rules change, B behind it."""
        return MARK + f"{self.number}-{which}.".encode()

    def denied(self, changed: bool) -> bool:
        return self.when == "denied" or (changed and self.when.startswith("revoked"))

    def rule(self) -> str:
        right = "subscribe" if self.side == "reader" else "publish"
        about = {
            "client id": f"client_ids = ['{self.subject}']",
            "beginning": f"client_ids = ['{self.subject[:-1]}*']",
            "unless": f"unless = {{ client_ids = ['{self.writer if self.side == 'reader' else self.reader}'] }}",
            "placeholder": "",
        }[self.form]
        topic = f"case/{self.number}/${{client_id}}" if self.form == "placeholder" else f"case/{self.number}/#"
        return f"[[rule]]\ndeny = ['{right}']\ntopics = ['{topic}']\n{about}\n"

    # ------------------------------------------------------------------ what must come

    def wanted(self) -> Iterator[bytes]:
        """Marks that the reader gets, whatever else it gets."""
        if self.when == "denied" or (self.side == "reader" and self.when == "revoked while away"):
            return
        first = self.path not in ("will", "retained")
        if self.when == "allowed":
            yield self.mark("B")
            if first or self.path == "retained":
                yield self.mark("A")
        elif self.side == "writer" and first:
            yield self.mark("A")

    def never(self) -> Iterator[bytes]:
        """Marks that it gets at no time."""
        if self.when == "allowed":
            return
        yield self.mark("B")
        if self.when == "denied":
            yield self.mark("A")

    def not_late(self) -> Iterator[bytes]:
        """Marks that it does not get a second behind the change."""
        if self.when.startswith("revoked") and (self.side == "reader" or self.path == "retained"):
            yield self.mark("A")

    def __str__(self) -> str:
        return f"case {self.number}: {self.path}, {self.side} {self.when} by {self.form}, MQTT {self.version}, {self.gateways} gateway"


def cases() -> list[Case]:
    rows = product(PATHS, SIDES, WHENS, FORMS, VERSIONS, GATEWAYS)
    return [Case(number, *row) for number, row in enumerate(rows, start=1)]


def rules(of: Sequence[Case], changed: bool, more: str = "") -> str:
    """The file: what is denied, then everything is allowed."""
    denials = "".join(case.rule() for case in of if case.denied(changed))
    return f"version = 1\n{more}{denials}[[rule]]\nallow = ['all']\ntopics = ['#']\n"
