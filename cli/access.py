"""`holdfast access check|explain`: whether a file of rules is good, and which rule decides.

Only talks: reading rules is access.rules_file, deciding access.decide. Mounted by `cli.main`.
"""

from __future__ import annotations

import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from access.explain import Explained, explain
from access.identity import ANONYMOUS, Identity, check_name
from access.rights import Extent, Right
from access.rules_file import TEXT_BYTES_MAX, Rule, RulesError, parse_rules
from access.subjects import WAYS_IN
from actors.access.publishing import read_bundle
from actors.access.sources import FileRefused, read_regular
from actors.run import read_run
from cli.paths import data_path
from cli.stores import refuse
from mqtt.reason import ProtocolError
from mqtt.topics import check_topic_filter, check_topic_name, is_shared, matched_filter

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Check rules, and ask which one decides.")

_RIGHTS = {right.name.lower(): right for right in Right if right.name}
_READING = Right.SUBSCRIBE | Right.SHARE | Right.REPLAY
_LEFT = (
    "a plugin decides: no rule of those that are about him says anything, which is not the last word; the plugin is asked when he does it, "
    "and not by this command"
)
_MAY_BE_LEFT = "; where a plugin decides (access.plugin.decides) that is left to it"
_YES = {Extent.ALL: "allowed", Extent.SOME: "allowed in part", Extent.NONE: "denied"}

RulesFile = Annotated[Path | None, typer.Option("--rules", metavar="FILE", help="A file of rules, instead of those in force.")]


@app.command()
def check(file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of rules, as access.rules names it.")]) -> None:
    """Exit 0 when the rules can be used; otherwise one sentence, and exit 1."""
    rules = _read(file)
    typer.echo(f"The rules are good: {len(rules)} of them." if rules else "The file is good and has no rule: nobody may do anything.")


@app.command("explain")
def explain_(
    user: Annotated[str, typer.Argument(metavar="USER", help='His name; "" for the anonymous one.')],
    client: Annotated[str, typer.Argument(metavar="CLIENT", help="The client id.")],
    right: Annotated[str, typer.Argument(metavar="RIGHT", help=f"One of {', '.join(_RIGHTS)}.")],
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="A topic, or what is subscribed to.")],
    rules: RulesFile = None,
    group: Annotated[list[str] | None, typer.Option("--group", metavar="GROUP", help="One of his groups. May be given often.")] = None,
    how: Annotated[str, typer.Option("--how", metavar="WAY", help=f"How he came in: {', '.join(WAYS_IN)}.")] = "",
    listener: Annotated[str, typer.Option("--listener", metavar="NAME", help="By which listener; not given: it is not known.")] = "",
    address: Annotated[str, typer.Option("--address", metavar="ADDRESS", help="From which address; not given: it is not known.")] = "",
    data_dir: Annotated[str, typer.Option("--data-dir", metavar="DIR", help="Of the broker whose rules are meant.")] = "./data",
) -> None:
    """Say whether USER on the connection of CLIENT has RIGHT on TOPIC, and which rule says so; exit 1 when he has not, 3 when it is left
    to a plugin."""
    asked = _RIGHTS.get(right)
    if asked is None:
        refuse(f"{right!r} is no right: one of {', '.join(_RIGHTS)} is wanted.", 2)
    if how and how not in WAYS_IN:
        refuse(f"nobody comes in by {how!r}: one of {', '.join(WAYS_IN)} is wanted.", 2)
    who = _identity(user, group or [], how)
    given: tuple[Rule, ...] | None
    decides: bool | None = None
    if rules is not None:
        given = _read(rules)
    else:
        given, decides = _in_force(data_dir)
    if given is None:
        typer.echo("allowed: there are no rules, so everybody who came in may do everything; what a token brings along is not looked at")
        return
    is_filter = bool(asked & _READING)
    found = explain(given, who, client.encode(), listener, address, asked, _topic(topic, is_filter), is_filter=is_filter)
    if found.rule is None and decides and asked is not Right.REPLAY and how != "pipeline":
        typer.echo(_LEFT)
        raise typer.Exit(3)
    typer.echo(_said(found, given) + (_MAY_BE_LEFT if found.rule is None and decides is None else ""))
    if found.extent is Extent.NONE:
        raise typer.Exit(1)


def _identity(user: str, groups: Sequence[str], how: str) -> Identity:
    if not user and how in ("", "anonymous"):
        return ANONYMOUS
    try:
        return Identity(check_name(user), how or "password", tuple([check_name(group, "the name of a group") for group in groups]))
    except ValueError as error:
        refuse(f"{error}.", 2)


def _said(found: Explained, rules: Sequence[Rule]) -> str:
    if found.rule is None:
        return "denied: no rule of those that are about him allows it"
    word = "allow" if rules[found.rule - 1].allow else "deny"
    line = f"{_YES[found.extent]}: rule {found.rule} of {len(rules)} ({word}) decides"
    if found.guards:
        numbers = ", ".join(str(number) for number in found.guards)
        line += f"; each message is asked for by its topic, as rule {numbers} before it may deny it"
    return line


def _topic(text: str, is_filter: bool) -> bytes:
    try:
        if not is_filter:
            return check_topic_name(text)
        found = check_topic_filter(text)
        return matched_filter(found) if is_shared(found) else found
    except ProtocolError as error:
        refuse(f"{text!r} is no topic{' filter' if is_filter else ''}: {error.detail}.", 2)


def _read(file: Path) -> tuple[Rule, ...]:
    try:
        return parse_rules(read_regular(str(file), TEXT_BYTES_MAX, stat.S_IWOTH, "everybody may write to it").decode())
    except FileRefused as error:
        refuse(f"{error}.")
    except UnicodeDecodeError as error:
        refuse(f"{file}: no UTF-8 at byte {error.start}, a file of rules is UTF-8.")
    except RulesError as error:
        refuse(f"{file}: {error}.")


def _in_force(data_dir: str) -> tuple[tuple[Rule, ...] | None, bool]:
    """The rules, None: everything is allowed; and whether a plugin has the word where they say nothing."""
    path = data_path(data_dir)
    run = read_run(path)
    if run is None or not run.launched():
        refuse(f"nothing runs in {path}; name a file with --rules.")
    bundle = read_bundle(run.run_dir)
    if bundle is None or (bundle.rules_text is None and not bundle.claims and not bundle.decides):
        return None, False
    return () if bundle.rules_text is None else parse_rules(bundle.rules_text), bundle.decides
