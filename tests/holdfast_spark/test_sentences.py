"""Sentences that a stranger meets first are short, however much there would be to say."""

from __future__ import annotations

import pytest

from holdfast_spark.options import OPTIONS, OptionError, read_options
from holdfast_spark.planning import Gap, lost
from holdfast_spark.sink import OPTIONS as SINK_OPTIONS

SENTENCE_MAX = 400
FAR = 10**16
"""A position of a store that is old."""


def gaps(count: int, klass: str = "default", shard: int = 15) -> list[Gap]:
    return [Gap(shard, 1000 + n, klass, n * FAR, (n + 1) * FAR, "period") for n in range(count)]


@pytest.mark.parametrize(
    ("typed", "meant"), [("maxRowPerTrigger", "maxRowsPerTrigger"), ("topic", "topicFilter"), ("leaseTTLs", "leaseTtl")]
)
def test_a_misspelled_option_is_told_what_may_be_meant(typed: str, meant: str) -> None:
    """Spark says the option in small letters."""
    with pytest.raises(OptionError, match=f"option '{typed.lower()}' is unknown; wanted is .*{meant}") as error:
        read_options({"brokers": "h:1", "token": "x", typed.lower(): "5"}, stream=True)
    assert len(str(error.value)) < SENTENCE_MAX


def test_an_option_like_no_other_is_told_some_of_them() -> None:
    """And where the others are."""
    with pytest.raises(
        OptionError, match=f"wanted is one of brokers, token, .* and {len(OPTIONS) - 12} others of docs/pipeline.md"
    ) as error:
        read_options({"brokers": "h:1", "token": "x", "zzzz": "5"}, stream=True)
    assert len(str(error.value)) < SENTENCE_MAX and len(SINK_OPTIONS) <= 12


def test_generations_that_went_one_after_the_other_are_one_stretch() -> None:
    """From the first position to the last; the gaps themselves stay apart for who counts them."""
    refused = lost(gaps(19))
    assert f"shard 15, generations 1000 to 1018 (class default), positions 0 to {19 * FAR}: period" in refused.sentence
    assert len(refused.more["gaps"]) == 19 and "more" not in refused.sentence


def test_one_gap_is_told_as_it_is() -> None:
    """Shard, generation, positions and reason."""
    sentence = lost(gaps(1)).sentence
    assert f"(shard 15, generation 1000 (class default), positions 0 to {FAR}: period)" in sentence
    assert sentence.endswith("option failOnDataLoss=false goes on without what was dropped, a lease keeps it")


def test_gaps_that_do_not_meet_are_apart() -> None:
    """Of other classes and shards as well; all are counted."""
    apart = [*gaps(3)[::2], *gaps(2, "short"), *gaps(1, shard=1)]
    assert "; and 2 more)" in lost(apart).sentence


def test_many_losses_are_still_one_sentence() -> None:
    """A store of many shards, a reader that was away for long."""
    many = [gap for shard in range(16) for klass in ("default", "short") for gap in gaps(500, klass, shard)]
    assert len(lost(many).sentence) < SENTENCE_MAX and "; and 30 more)" in lost(many).sentence
