"""What pages say is so: settings, tables of codes and alarms, worked examples, boxes that are done by a gate, and an index that has all."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import cache
from hashlib import blake2b
from pathlib import Path

import pytest
from typer.testing import CliRunner

from access.rules_file import parse_rules
from cli.main import app
from config.load import load
from config.settings import LISTENERS, NAME, ZONES, all_settings, section_names
from mqtt.reason import ReasonCode
from shards.slots import SlotTable, slot_of
from tests.gates.gate_06_2_stranger import PAGES as OF_THE_STRANGER
from tests.gates.gate_06_2_stranger import TASKS
from tests.gates.stranger import boxes, lacking
from tests.house.tree import ROOT, packages, shipped, tree
from tests.listening.authority import Authority
from tests.needs import find_program

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
_SPAN = re.compile(r"`([^`\n]+)`")
_KEY = re.compile(r"[a-z_]+(?:\.[A-Za-z0-9_-]+)+")
_TOML = re.compile(r"^```toml\n(.*?)^```", re.M | re.S)
SECTIONS = {key.partition(".")[0] for key in all_settings() if "." in key} | {"zones"}


def text_of(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def keys(text: str) -> Iterator[str]:
    """What stands in code and begins as a setting does."""
    for span in _SPAN.findall(re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)):
        found = _KEY.match(span)
        if found and found[0].partition(".")[0] in SECTIONS and (found.end() == len(span) or span[found.end()] in " ="):
            yield found[0]


@cache
def literals() -> frozenset[str]:
    """Texts of the program, among them the names of its files and of what it logs."""
    constants = (node for name in shipped() for node in ast.walk(tree(name)) if isinstance(node, ast.Constant))
    return frozenset([node.value for node in constants if isinstance(node.value, str)])


@cache
def is_setting(key: str) -> bool:
    known = all_settings()
    for naming in (ZONES, LISTENERS):
        name = naming.name_in(key)
        if name is not None:
            key = naming.template + key.removeprefix(f"{naming.prefix}{name}.")
    sections = set(section_names()) | {f"{each.rpartition('.')[0]}" for each in known}
    named = {f"{naming.template}{field}" for naming in (ZONES, LISTENERS) for field in naming.section.model_fields}
    below = any(key.startswith(f"{each}.") for each in named)
    return key in known or key in sections or key in named or below or key in (f"zones.{NAME}", f"listeners.{NAME}")


def is_module(key: str) -> bool:
    """Or something in one."""
    parts = key.split(".")
    return parts[0] in packages() and any((ROOT / Path(*parts[:count])).with_suffix(".py").exists() for count in range(2, len(parts) + 1))


# What EMQX has and what becomes of it is the matter of parity.md, which has tests of its own.
@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "parity.md"], ids=lambda page: page.name)
def test_every_setting_of_a_page_exists(page: Path) -> None:
    """So that nobody writes one into his file that was renamed."""
    found = [key for key in keys(page.read_text(encoding="utf-8")) if not is_setting(key) and not is_module(key)]
    assert [key for key in found if key not in literals()] == []


def test_a_setting_that_does_not_exist_is_found() -> None:
    """And one of a listener or zone that has a name is known."""
    assert list(keys("`mqtt.max_inflght` and `mqtt.max_inflight = 3`, `shards/N`")) == ["mqtt.max_inflght", "mqtt.max_inflight"]
    assert is_setting("mqtt.max_inflight") and is_setting("listeners.secure.bind") and not is_setting("mqtt.max_inflght")


@pytest.mark.parametrize("page", [page for page in PAGES if "```toml" in page.read_text(encoding="utf-8")], ids=lambda page: page.name)
def test_every_configuration_of_a_page_can_be_used(page: Path, tmp_path: Path) -> None:
    """Files of settings, and files of rules."""
    for number, block in enumerate(_TOML.findall(page.read_text(encoding="utf-8"))):
        if "[[rule]]" in block:
            assert parse_rules(block)
        else:
            file = tmp_path / f"{number}.toml"
            file.write_text(block, encoding="utf-8")
            load(file, environ={})


def test_every_page_is_in_the_index() -> None:
    """A page that nobody finds answers nobody."""
    linked = set(re.findall(r"\]\(([a-z-]+\.md)\)", text_of("README.md"), re.I))
    assert {page.name for page in PAGES} - linked == {"README.md"}


def test_every_code_that_is_sent_is_explained() -> None:
    """Those that gateways and whoever judges logins name, in the table of troubleshooting.md."""
    asked = [name for name in shipped() if name.parts[0] == "gateway" or name.parts[:2] == ("actors", "auth")]
    named = {
        node.attr
        for name in asked
        for node in ast.walk(tree(name))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "ReasonCode"
    }
    codes = {int(ReasonCode[name]) for name in named if name in ReasonCode.__members__}
    table = text_of("troubleshooting.md").partition("## What the codes mean")[2]
    explained = {
        int(code, 16) for line in table.splitlines() if line.startswith("| 0x") for code in re.findall(r"0x..", line.split("|")[1])
    }
    # Yes, parts of a login that goes on, and what only a plugin of somebody else's says.
    silent = {0x00, 0x11, 0x18, 0x19, 0x80, 0x83, 0x8A, 0x91, 0x9F}
    assert len(codes) > 20 and codes - explained - silent == set()


def test_every_alarm_is_explained() -> None:
    """By its kind, as `Alarm(name, kind, cause)` has it."""
    names = {"ALARM", "_ALARM", "KIND", "_CONTENDED", "REGISTER", "DOWN", "PLACE"}
    kinds = set()
    for name in shipped():
        for node in ast.walk(tree(name)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
            value = getattr(node, "value", None)
            if name.parts[0] == "actors" and isinstance(value, ast.Constant) and isinstance(value.value, str):
                kinds |= {value.value for target in targets if isinstance(target, ast.Name) and target.id in names}
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Alarm" and len(node.args) == 3:
                kind = node.args[1]
                kinds |= {kind.value} if isinstance(kind, ast.Constant) and isinstance(kind.value, str) else set()
    table = text_of("troubleshooting.md").partition("## What the alarms mean")[2]
    assert len(kinds) >= 7 and {kind for kind in kinds if f"| `{kind}` |" not in table} == set()


def test_the_table_of_hashes_is_what_the_code_makes() -> None:
    """Whoever lays clients out outside has to come to the same shards."""
    rows = [line.strip("| ").split(" | ") for line in text_of("load-balancers.md").splitlines() if line.startswith("| `")]
    assert len(rows) >= 5
    for client, digest, slot, *shards in rows:
        key = client.strip("`").encode()
        assert (digest, int(slot)) == (blake2b(key, digest_size=8).hexdigest(), slot_of(key))
        assert [int(shard) for shard in shards] == [SlotTable.initial(count).shard_of(key) for count in (2, 3, 4, 8, 16)]


def test_examples_of_sizing_print_what_their_page_says() -> None:
    """Each command of sizing.md, with the lines behind it."""
    found = re.findall(r"<!-- sizing -->\n```\n(.*?)```\n```text\n(.*?)```", text_of("sizing.md"), re.S)
    assert len(found) == 3
    for command, printed in found:
        assert CliRunner().invoke(app, shlex.split(command)[1:]).stdout == printed


def test_the_boxes_of_the_stranger_are_commands() -> None:
    """Each is one for bash, each task prints something that is compared, and no other task is named."""
    found = [box for page in OF_THE_STRANGER for box in boxes(DOCS / page)]
    assert list(dict.fromkeys(box.task for box in found)) == list(TASKS)
    assert {box.task for box in found if box.prints} >= set(TASKS) - {"stop"}
    for box in found:
        assert subprocess.run(["bash", "-n"], input=box.commands, text=True, check=False).returncode == 0, box.place
    assert sum(page.read_text(encoding="utf-8").count("<!-- task:") for page in PAGES) == len(found)


def test_what_is_printed_is_compared_line_by_line() -> None:
    """In order, whole lines, others between, and an ellipsis for anything."""
    output = "one\ntwo 17 s\nthree\n"
    assert lacking(["one", "two…", "three"], output) is None and lacking(["…17…"], output) is None and lacking([], "") is None
    assert lacking(["two…", "one"], output) == "one" and lacking(["tw"], output) == "tw" and lacking(["o.e"], output) == "o.e"


@pytest.mark.needs("haproxy")
def test_haproxy_takes_its_example(tmp_path: Path) -> None:
    """As it is, but for the place of the certificate."""
    Authority(tmp_path).issue("broker")
    pem = tmp_path / "both.pem"
    pem.write_text("".join((tmp_path / f"broker.{part}").read_text() for part in ("pem", "key")))
    file = tmp_path / "haproxy.cfg"
    file.write_text((ROOT / "deploy/haproxy/haproxy.cfg").read_text().replace("/etc/haproxy/broker.pem", str(pem)))
    done = subprocess.run([str(find_program("haproxy")), "-c", "-f", str(file)], capture_output=True, text=True, check=False)
    assert (done.returncode, "[WARNING]" in done.stderr, "[ALERT]" in done.stderr) == (0, False, False), done.stderr


@pytest.mark.needs("systemd")
def test_systemd_takes_its_unit(tmp_path: Path) -> None:
    """With programs that are there."""
    unit = tmp_path / "holdfast.service"
    text = (ROOT / "deploy/systemd/holdfast.service").read_text(encoding="utf-8")
    unit.write_text(text.replace("/opt/holdfast/.venv/bin/holdfast", "/bin/true"), encoding="utf-8")
    done = subprocess.run([str(find_program("systemd-analyze")), "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
