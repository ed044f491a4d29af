"""docs/parity.md: every name of the design has a row, every row a test, and what there is is on a page."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from actors.metrics import docs as metrics_page
from actors.metrics.catalogue import METRICS as MADE
from actors.metrics.catalogue import NOT_HERE
from config import docs as settings_page
from config.elsewhere import NOTHING_HERE, RENAMED
from config.settings import LISTENERS, ZONES, all_settings, named_settings, setting_of
from tests.admin.described import operations
from tests.house.test_commands import COMMANDS as PROGRAM
from tests.house.test_commands import leaves, unknown
from tests.parity import names
from tests.parity.table import PAGE, Row, is_there, rows

WANTED = {
    "concepts": names.CONCEPTS, "parameters": names.PARAMETERS, "commands": names.COMMANDS, "endpoints": names.ENDPOINTS,
    "metrics": names.METRICS,
}  # fmt: skip
ROWS = rows()
NAMED = {kind: [name for row in ROWS if row.kind == kind for name in row.names] for kind in WANTED}


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_every_row_says_what_is_here_and_names_tests_that_are_there(row: Row) -> None:
    """A row without a test is a claim that nobody keeps."""
    assert row.here and row.tests, "a row has a name, a text and at least one test"
    assert [test for test in row.tests if not is_there(test)] == []


@pytest.mark.parametrize("kind", WANTED)
def test_every_name_of_the_design_has_one_row(kind: str) -> None:
    """What is not in Holdfast too: its row says so."""
    assert [name for name, count in Counter(NAMED[kind]).items() if count > 1] == []
    assert [name for name in WANTED[kind] if name not in NAMED[kind]] == []


def test_a_row_that_is_missing_or_names_no_test_is_found() -> None:
    """So that the tests above can fail."""
    head = "| Metric | Here | Test |\n|---|---|---|\n"
    made = rows(f"{head}| `a`, `b` | the same | `tests/parity/test_parity.py::test_nowhere` |\n\n| `c` | x | y |\n")
    assert [(row.kind, row.names, row.here) for row in made] == [("metrics", ("a", "b"), "the same")]
    assert not is_there(made[0].tests[0]) and not is_there("tests/parity/table.py::rows") and not is_there("tests/parity/test_parity.py")
    assert is_there("tests/parity/test_parity.py::test_a_row_that_is_missing_or_names_no_test_is_found")


# ---------------------------------------------------------------------- what there is


def test_every_parameter_of_the_table_is_what_its_row_says() -> None:
    """A setting; or a key that is taken under another name, or left, and then the row says `nothing`."""
    for row in [row for row in ROWS if row.kind == "parameters"]:
        for key in row.names:
            known = setting_of(key.replace("NAME", "x")) is not None or key in RENAMED
            left = key in NOTHING_HERE
            assert known != left, key
            assert row.here.startswith("nothing") is left, key
    assert {*NOTHING_HERE, *RENAMED} <= set(NAMED["parameters"])


def test_every_setting_is_on_the_page_of_settings() -> None:
    """Below the title of its section."""
    text = settings_page.PAGE.read_text(encoding="utf-8")
    sections = {title.strip("[]`"): body for title, body in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", text, re.M | re.S)}
    keys = [*all_settings(), *named_settings(LISTENERS), *named_settings(ZONES)]
    assert [key for key in keys if f"| `{key.rpartition('.')[2]}` |" not in sections[key.rpartition(".")[0] or "Top of the file"]] == []


def test_every_command_is_in_the_table_and_every_command_of_the_table_is_there() -> None:
    """Those that are not shown stand for others."""
    commands = [f"holdfast {' '.join(path)}" for path in leaves(PROGRAM)]
    assert [command for command in commands if command not in NAMED["commands"]] == []
    assert [name for name in NAMED["commands"] if name.startswith("holdfast ") and unknown(name.split()[1:]) is not None] == []


def test_every_metric_is_on_the_page_of_metrics_and_every_metric_of_the_table_is_there_or_said_to_be_missing() -> None:
    """Names that EMQX has in other forms, as in its dashboard, have rows that say where to look."""
    text = metrics_page.PAGE.read_text(encoding="utf-8")
    made = {metric.name for metric in MADE}
    assert [name for name in made if f"| `{name}` |" not in text] == []
    assert [name for name in made if name.startswith("emqx_") and name not in NAMED["metrics"] and name != "emqx_messages_persisted"] == []
    for row in [row for row in ROWS if row.kind == "metrics" and row.names[0].startswith("emqx_")]:
        for name in row.names:
            assert (name in made) is not row.here.startswith("not here"), name


def test_every_endpoint_of_the_table_is_there_or_said_to_be_missing() -> None:
    """And every one that there is, is on the page of REST (tests/admin/test_description.py)."""
    made = set(operations())
    for row in [row for row in ROWS if row.kind == "endpoints"]:
        for name in row.names:
            assert (name in made) is not row.here.startswith("not here"), name


def _missing(kind: str) -> list[str]:
    return [name for row in ROWS if row.kind == kind and row.here.startswith("not here") for name in row.names]


@pytest.mark.parametrize("name", _missing("endpoints"))
def test_an_endpoint_that_is_not_here_is_not_served(name: str) -> None:
    """Under no method, nor anything below it."""
    path = name.partition(" ")[2]
    assert [one for one in operations() if one.partition(" ")[2].startswith(path)] == []


@pytest.mark.parametrize("name", _missing("metrics"))
def test_a_metric_that_is_not_here_has_a_reason(name: str) -> None:
    """And nothing has its name."""
    assert [known for known in NOT_HERE if name.startswith(known)] and name not in {metric.name for metric in MADE}


def test_the_page_is_linked() -> None:
    """From the page of settings and from that of metrics, where people look first."""
    for page in (settings_page.PAGE, metrics_page.PAGE):
        assert PAGE.name in page.read_text(encoding="utf-8"), page.name
