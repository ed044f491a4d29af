"""The table of statements (statements.toml) keeps its word: it is complete, its tests are there, and enough is covered."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

from tests.house.tree import ROOT

HERE = Path(__file__).parent
COVERED_LEAST = 0.95

# The ids of the appendices, as section and the range of numbers in it.
IDS = {
    "3.1.1": """
        1.5.3:1-3 2.2.2:1-2 2.3.1:1-7 3.1.0:1-2 3.1.2:1-24 3.1.3:1-11 3.1.4:1-5 3.2.0:1-1 3.2.2:1-6 3.3.1:1-12 3.3.2:1-3 3.3.4:1-1
        3.3.5:1-2 3.6.1:1-1 3.8.1:1-1 3.8.3:1-4 3.8.4:1-6 3.9.3:1-2 3.10.1:1-1 3.10.3:1-2 3.10.4:1-6 3.12.4:1-1 3.14.1:1-1 3.14.4:1-3
        4.1.0:1-2 4.3.1:1-1 4.3.2:1-2 4.3.3:1-2 4.4.0:1-1 4.5.0:1-2 4.6.0:1-6 4.7.1:1-3 4.7.2:1-1 4.7.3:1-4 4.8.0:1-2 6.0.0:1-4
        7.0.0:1-2 7.1.1:1-1 7.1.2:1-1""",
    "5": """
        1.5.4:1-3 1.5.5:1-1 1.5.7:1-1 2.1.3:1-1 2.2.1:2-6 2.2.2:1-1 3.1.0:1-2 3.1.2:1-30 3.1.3:1-12 3.1.4:1-6 3.2.0:1-2 3.2.2:1-22
        3.3.1:1-13 3.3.2:1-20 3.3.4:1-10 3.4.2:1-3 3.5.2:1-3 3.6.1:1-1 3.6.2:1-3 3.7.2:1-3 3.8.1:1-1 3.8.3:1-5 3.8.4:1-8 3.9.2:1-2
        3.9.3:1-2 3.10.1:1-1 3.10.3:1-2 3.10.4:1-6 3.11.2:1-2 3.11.3:1-2 3.12.4:1-1 3.14.0:1-1 3.14.1:1-1 3.14.2:1-4 3.14.4:1-3
        3.15.1:1-1 3.15.2:1-3 4.1.0:1-2 4.2.0:1-1 4.3.1:1-1 4.3.2:1-5 4.3.3:1-13 4.4.0:1-2 4.5.0:1-2 4.6.0:1-6 4.7.0:1-1 4.7.1:1-2
        4.7.2:1-1 4.7.3:1-4 4.8.2:1-6 4.9.0:1-3 4.12.0:1-7 4.12.1:1-2 4.13.1:1-1 4.13.2:1-1 6.0.0:1-4""",
}
COUNTS = {"3.1.1": 141, "5": 251}


@dataclass(frozen=True, slots=True)
class Statement:
    id: str
    protocols: tuple[str, ...]
    clause: str
    party: str = "server"
    tests: tuple[str, ...] = field(default=())
    lacks: str = ""
    reason: str = ""


def read(text: str) -> list[Statement]:
    """Every field has to be one that we know."""
    fields = set(Statement.__dataclass_fields__)
    statements = []
    for row in tomllib.loads(text)["statement"]:
        assert set(row) <= fields, f"{row['id']}: unknown fields {sorted(set(row) - fields)}"
        protocols, tests = tuple(row["protocols"]), tuple(row.get("tests", ()))
        party, lacks, reason = row.get("party", "server"), row.get("lacks", ""), row.get("reason", "")
        statements.append(Statement(row["id"], protocols, row["clause"], party, tests, lacks, reason))
    return statements


@cache
def table() -> tuple[Statement, ...]:
    return tuple(read((HERE / "statements.toml").read_text(encoding="utf-8")))


def ids_of(protocol: str) -> set[str]:
    ids = set()
    for section, first, last in re.findall(r"([\d.]+):(\d+)-(\d+)", IDS[protocol]):
        ids |= {f"MQTT-{section}-{number}" for number in range(int(first), int(last) + 1)}
    return ids


@cache
def names_in(path: Path) -> frozenset[str]:
    if not path.is_file():
        return frozenset()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return frozenset(node.name for node in functions if node.name.startswith("test_"))


# ---------------------------------------------------------------------------------------------- what is looked for
def twice(statements: list[Statement]) -> list[tuple[str, str]]:
    counts = Counter((each.id, protocol) for each in statements for protocol in each.protocols)
    return [row for row, count in counts.items() if count > 1]


def missing_tests(statements: list[Statement]) -> list[str]:
    """Tests that a statement names and that are not there."""
    named = {test for each in statements for test in each.tests}
    return sorted(test for test in named if test.partition("::")[2] not in names_in(ROOT / test.partition("::")[0]))


def silent(statements: list[Statement]) -> list[str]:
    """Statements that say neither which test covers them nor why none does, or say both."""
    found = []
    for each in statements:
        said = bool(each.tests) + bool(each.lacks) + bool(each.reason)
        wanted = said == 1 if each.party == "server" else each.party == "client" and not (each.lacks or each.reason)
        if not wanted or not each.clause or not each.protocols or not set(each.protocols) <= IDS.keys():
            found.append(each.id)
    return found


def covered(statements: list[Statement], protocol: str) -> float:
    """The share of what concerns a server that tests cover."""
    ours = [each for each in statements if protocol in each.protocols and each.party == "server"]
    return sum(bool(each.tests) for each in ours) / len(ours)


# ---------------------------------------------------------------------------------------------- the table
@pytest.mark.parametrize("protocol", IDS)
def test_every_statement_of_a_specification_is_in_the_table(protocol: str) -> None:
    """By its id, and no id is there that the specification does not have."""
    assert len(ids_of(protocol)) == COUNTS[protocol]
    found = {each.id for each in table() if protocol in each.protocols}
    assert (sorted(ids_of(protocol) - found), sorted(found - ids_of(protocol))) == ([], [])


def test_no_statement_is_in_the_table_twice() -> None:
    """Once for each version that has it."""
    assert twice(list(table())) == []


def test_every_test_that_a_statement_names_is_there() -> None:
    """As path::name, from the root of the repository."""
    assert missing_tests(list(table())) == []


def test_every_statement_has_tests_or_a_reason() -> None:
    """Those that bind clients only may have neither."""
    assert silent(list(table())) == []


@pytest.mark.parametrize("protocol", IDS)
def test_enough_statements_are_covered(protocol: str) -> None:
    """At least 95 of 100 that concern a server, of each version."""
    assert covered(list(table()), protocol) >= COVERED_LEAST


def _named() -> Iterator[tuple[str, str]]:
    """Ids that a docstring of this directory names, like [MQTT-3.1.2-4, -5]: (file, id)."""
    for path in sorted(HERE.glob("test_*.py")):
        for section, numbers in re.findall(r"\[MQTT-(\d+\.\d+\.\d+)((?:(?:,| to)? ?-\d+)+)\]", path.read_text(encoding="utf-8")):
            for number in re.findall(r"\d+", numbers):
                yield path.name, f"MQTT-{section}-{number}"


def test_every_id_that_a_test_names_is_one() -> None:
    """A misprint in a docstring would lead nobody anywhere."""
    named = list(_named())
    known = ids_of("3.1.1") | ids_of("5")
    assert len(named) > 300
    assert [row for row in named if row[1] not in known] == []


# ---------------------------------------------------------------------------------------------- these tests can fail
GOOD = """
[[statement]]
id = "MQTT-3.1.0-1"
protocols = ["5"]
clause = "A connection begins with CONNECT."
tests = ["tests/conformance/test_connect.py::test_the_first_packet_has_to_be_a_connect"]
"""


def test_a_table_that_is_right_passes() -> None:
    """Nothing is found in it."""
    statements = read(GOOD)
    assert (twice(statements), missing_tests(statements), silent(statements), covered(statements, "5")) == ([], [], [], 1.0)


def test_an_id_that_is_listed_twice_is_found() -> None:
    """Of the same version; another version may have it too."""
    assert twice(read(GOOD + GOOD)) == [("MQTT-3.1.0-1", "5")]
    assert twice(read(GOOD + GOOD.replace('["5"]', '["3.1.1"]'))) == []


@pytest.mark.parametrize(
    "test",
    [
        "test_connect.py::test_nothing",
        "test_none.py::test_x",
        "test_connect.py::_refused",
        "test_connect.py",
        "test_connect.py::test_nothing[a]",
    ],
)
def test_a_test_that_is_not_there_is_found(test: str) -> None:
    """No file, no such function, no test, no name."""
    name = f"tests/conformance/{test}"
    text = GOOD.replace("tests/conformance/test_connect.py::test_the_first_packet_has_to_be_a_connect", name)
    assert missing_tests(read(text)) == [name]


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("", True),
        ('lacks = "x"', False),
        ('reason = "x"', False),
        ('party = "client"', False),
        ('party = "both"', True),
        ('lacks = ""', True),
    ],
)
def test_a_statement_without_test_and_reason_is_found(line: str, wrong: bool) -> None:
    """And one of a party that there is not."""
    text = re.sub(r"tests = .*", line, GOOD)
    assert silent(read(text)) == (["MQTT-3.1.0-1"] if wrong else [])
    assert silent(read(GOOD + 'lacks = "x"\n')) == ["MQTT-3.1.0-1"]


def test_what_lacks_is_not_covered() -> None:
    """Nor what has only a reason; what binds clients does not count."""
    other = GOOD.replace("MQTT-3.1.0-1", "MQTT-3.1.0-2")
    for line, share in (('lacks = "x"', 0.5), ('reason = "x"', 0.5), ('party = "client"', 1.0)):
        assert covered(read(GOOD + re.sub(r"tests = .*", line, other)), "5") == share
