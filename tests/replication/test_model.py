"""The rules of replication keep their promises, and each of them is needed."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.replication.model import Model
from tests.replication.model_hunt import RULES, broken
from tests.replication.model_words import Rule


@pytest.mark.slow
def test_the_rules_hold_whatever_the_world_does() -> None:
    """And the world does a lot: power cuts, takeovers, changes of replicas and of the in-sync set."""
    happened: Counter[str] = Counter()
    for seed in range(300):
        model = Model(seed)
        try:
            model.run()
        except AssertionError as found:
            raise AssertionError(f"{found}; again: python -m tests.replication --model --seed {seed}") from found
        happened.update(model.happened)
    assert all(happened[what] > 300 for what in ("power cut", "takeover", "reign", "change", "commit")), happened


@pytest.mark.slow
@pytest.mark.parametrize("rule", list(Rule), ids=lambda rule: rule.name.lower())
def test_no_rule_can_be_left_out(rule: Rule) -> None:
    """Some seed breaks a promise without it."""
    catch = RULES.known_first(rule)
    assert 0 <= catch.seed < RULES.seeds_max, catch.why


def test_one_seed_gives_one_history() -> None:
    """So that a seed that was found can be looked at."""

    def history(seed: int) -> tuple[Counter[str], object, list[object]]:
        model = Model(seed)
        model.run()
        return model.happened, model.record, list(model.committed)

    assert history(7) == history(7) and broken(7) == ""
