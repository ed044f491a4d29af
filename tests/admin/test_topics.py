"""The learned structure as a tree."""

from __future__ import annotations

from typing import Any

from actors.admin.topics import drawn, tree, under
from actors.inquiry.topics import Pattern

PATTERNS = [
    Pattern("plant/+/temp", 100, 1000, False, 2),
    Pattern("plant/+/noise", 20, 200, True, 1),
    Pattern("plant/door", 3, 30, False, 1),
    Pattern("/x", 1, 10, False, 1),
]


def names(node: dict[str, Any]) -> Any:
    return {child["level"]: names(child) for child in node["children"]}


def test_sums_are_those_of_everything_below() -> None:
    """An empty level is one too; what is estimated anywhere below is estimated."""
    whole = drawn(tree(PATTERNS), 16, 1000)
    assert (whole["messages"], whole["bytes"], whole["streams"], whole["estimated"], whole["below"]) == (124, 1240, 5, True, 2)
    assert names(whole) == {"": {"x": {}}, "plant": {"+": {"noise": {}, "temp": {}}, "door": {}}}
    plant = next(child for child in whole["children"] if child["level"] == "plant")
    assert (plant["path"], plant["messages"], plant["below"]) == ("plant", 123, 2)
    assert [child["path"] for child in plant["children"]] == ["plant/+", "plant/door"] and not plant["children"][1]["estimated"]


def test_what_is_left_out_is_the_smallest_and_the_deepest() -> None:
    """So many levels, so many nodes; a node says how many children it has."""
    assert names(drawn(tree(PATTERNS), 1, 1000)) == {"": {}, "plant": {}}
    few = drawn(tree(PATTERNS), 16, 3)
    assert names(few) == {"": {}, "plant": {"+": {}}} and few["children"][1]["below"] == 2
    assert names(drawn(tree(PATTERNS), 16, 1)) == {"plant": {}}
    assert drawn(tree([]), 3, 10)["children"] == []


def test_a_part_of_the_tree_is_found_by_its_levels() -> None:
    """And nothing where there is nothing."""
    found = under(tree(PATTERNS), "plant/+")
    assert found is not None and found.messages == 120
    assert under(tree(PATTERNS), "plant/none/x") is None
