"""The matrix: path x whose right x when it goes x what says so x version x gateways; and what must come, and what must not.

A case is a pair of clients of its own with a topic of its own, so that all of them are in one file of rules and in one broker. What says so
is a rule of the file in one of its forms, or a claim: the token of the client in question, which ends when the file of rules changes, and
behind which it has another one; or a plugin that decides (plugged.py).
Tests of APPEND and SCAN, which are no clients of MQTT, are in bulk.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final, Protocol

PATHS: Final = (
    "live 0",
    "live 1",
    "live 2",
    "offline",
    "resumed 1",
    "resumed 2",
    "retained",
    "shared",
    "shared stored",
    "memory",
    "will",
    "delayed",
)
SIDES: Final = ("reader", "writer")
WHENS: Final = ("allowed", "denied", "revoked", "revoked while away", "revoked before PUBREC")
FORMS: Final = ("client id", "beginning", "unless", "placeholder", "claim")
PLUGIN: Final = "plugin"
"""A form of a broker of its own, as nothing else may decide there."""
VERSIONS: Final = (4, 5)
GATEWAYS: Final = ("same", "other")
MEMORY: Final = "memory-"
"""So begin the client ids whose sessions are in memory (a zone of the broker's)."""
STORED: Final = ("offline", "shared stored", "resumed 1", "resumed 2", "memory")
"""Paths of a session that outlives its connection."""
AT_ONCE: Final = ("live 0", "live 1", "live 2", "shared", "shared stored", "resumed 1", "resumed 2")
"""Paths whose reader is there when A is published."""
AWAY: Final = ("offline", "memory")
JUDGED_LATER: Final = ("retained", "will", "delayed")
"""Paths on which the writer is asked about again, when its message is given out."""
QOS_2: Final = ("live 2", "resumed 2")
PROBED: Final = ("live 0", "live 1")
"""Paths on which message follows message while the right goes, to see when the last one comes."""
MARK: Final = b"marked-"


class Denied(Protocol):
    """What the file of rules is made of."""

    def denied(self, changed: bool) -> bool: ...

    def rule(self) -> str: ...


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
        return f"{'$share/g/' if self.path.startswith('shared') else ''}case/{self.number}/#"

    @property
    def qos(self) -> int:
        return int(self.path[-1]) if self.path[-1].isdigit() else 1

    @property
    def stored(self) -> bool:
        return self.path in STORED

    @property
    def before_pubrec(self) -> bool:
        """A is on its way, by one side or the other, while the right goes."""
        return self.when == "revoked before PUBREC"

    @property
    def expires(self) -> bool:
        """The right goes with the token that brought it."""
        return self.form == "claim" and self.when.startswith("revoked")

    @property
    def probed(self) -> bool:
        return self.path in PROBED and self.when == "revoked"

    @property
    def kept(self) -> bool:
        """What its writer left is judged by the token that it had then: a message that waits is shown no other, and no plugin is asked."""
        return self.path in JUDGED_LATER and self.form in ("claim", PLUGIN) and self.side == "writer" and self.when != "denied"

    def mark(self, which: str) -> bytes:
        """A before the change, B behind it."""
        return MARK + f"{self.number}-{which}.".encode()

    def denied(self, changed: bool) -> bool:
        return self.when == "denied" or (changed and self.when.startswith("revoked"))

    def claim(self, changed: bool) -> dict[str, list[str]]:
        """The grants of the token that its subject shows."""
        topic_filter = "elsewhere/#" if self.denied(changed) else f"case/{self.number}/#"
        return {"sub" if self.side == "reader" else "pub": [topic_filter]}

    def rule(self) -> str:
        """What denies it; nothing for a claim, since whoever has a token may do what that says and no more, and what a plugin says."""
        if self.form in ("claim", PLUGIN):
            return ""
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
        if self.when == "allowed":
            yield self.mark("B")
        if self.when == "denied" or (self.path == "will" and not self.kept):
            return
        if self.path == "will":
            yield self.mark("B")
        elif self.when == "allowed" or self.kept or self.path in (AT_ONCE if self.side == "reader" else (*AT_ONCE, *AWAY)):
            yield self.mark("A")

    def never(self) -> Iterator[bytes]:
        """Marks that it gets at no time."""
        if self.when == "allowed":
            return
        if not (self.path == "will" and self.kept):
            yield self.mark("B")
        if self.when == "denied":
            yield self.mark("A")

    def not_late(self) -> Iterator[bytes]:
        """Marks that it does not get a second behind the change."""
        judged = self.side == "reader" or self.probed or (self.path in JUDGED_LATER and not self.kept)
        if self.when.startswith("revoked") and judged:
            yield self.mark("A")

    def __str__(self) -> str:
        return f"case {self.number}: {self.path}, {self.side} {self.when} by {self.form}, MQTT {self.version}, {self.gateways} gateway"


def cases(forms: Sequence[str] = FORMS, first: int = 1) -> list[Case]:
    """first: the number of the first one."""
    rows = [row for row in product(PATHS, SIDES, WHENS, forms, VERSIONS, GATEWAYS) if row[0] in QOS_2 or row[2] != WHENS[-1]]
    return [Case(number, *row) for number, row in enumerate(rows, start=first)]


def denials(of: Sequence[Denied], changed: bool) -> str:
    """The rules that deny."""
    return "".join(case.rule() for case in of if case.denied(changed))


def rules(of: Sequence[Denied], changed: bool, more: str = "") -> str:
    """The file: what is denied, then everything is allowed to all but those who bring their rights along.  more: rules before these."""
    return f"version = 1\n{more}{denials(of, changed)}[[rule]]\nallow = ['all']\ntopics = ['#']\nunless = {{ how = ['jwt', 'pipeline'] }}\n"
