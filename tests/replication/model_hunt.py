"""The ground of the model: which seed is the first whose history breaks a promise when a rule is left out.

`python -m tests.replication --model --planted --write` makes tests/replication/model_catches.json.
"""

from __future__ import annotations

from pathlib import Path

from tests.hunting import Ground
from tests.replication.model import Model
from tests.replication.model_words import Rule, Violation


class Rules(Ground[Rule]):
    faults = tuple(Rule)
    table = Path(__file__).with_name("model_catches.json")
    seeds_max = 2000

    def name(self, fault: Rule) -> str:
        return fault.value

    def trial(self, fault: Rule, seed: int) -> tuple[str, int]:
        return broken(seed, fault), 1

    def holds(self, seed: int) -> bool:
        return not broken(seed)


def broken(seed: int, without: Rule | None = None) -> str:
    """What this history breaks; empty: nothing."""
    try:
        Model(seed, without).run()
    except Violation as found:
        return str(found)
    return ""


RULES = Rules()
