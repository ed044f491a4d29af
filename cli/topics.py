"""`holdfast topics`: what a running broker has learned of its topics, how much lies under each, and what reading a filter costs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import typer

from actors.inquiry import topics as inquiry
from actors.inquiry.asking import Asking
from actors.inquiry.stored import Stored
from actors.inquiry.topics import GenerationRead, Pattern
from cli.asked import DataDir, Json, amount, ask, end, facts, number, print_json
from cli.typed import checked_filter

app = typer.Typer(add_completion=False, help="What is learned of topics, how much lies under each, and what a wildcard costs.")

STREAMS_PRINTED = 20


@dataclass(slots=True)
class _Level:
    messages: int = 0
    bytes: int = 0
    estimated: bool = False
    below: dict[str, _Level] = field(default_factory=dict)


@app.callback(invoke_without_command=True)
def topics(
    context: typer.Context,
    only: Annotated[str, typer.Option("--filter", metavar="FILTER", help="Only what matches this topic filter.")] = "#",
    depth: Annotated[int, typer.Option("--depth", min=1, metavar="N", help="So many levels; what is below counts with them.")] = 1000,
    data_dir: DataDir = "./data", as_json: Json = False,
) -> None:  # fmt: skip
    """The learned topic structure as a tree; + stands for a level that varies."""
    if context.invoked_subcommand is not None:
        return
    wanted = checked_filter(only).encode()

    async def asks(asking: Asking) -> tuple[list[Pattern], tuple[str, ...]]:
        async with Stored(asking) as stored:
            return await inquiry.patterns(asking, stored, wanted)

    found, missing = ask(data_dir, asks)
    if as_json:
        print_json(found)
    elif found:
        _print_tree(_tree(found), depth)
    else:
        print("no messages are stored" if only == "#" else f"no messages are stored that match {only}")
    end(missing)


@app.command()
def explain(
    topic_filter: Annotated[str, typer.Argument(metavar="FILTER", help="A topic filter, such as 'plant/+/temp' or '#'.")],
    data_dir: DataDir = "./data", as_json: Json = False,
) -> None:  # fmt: skip
    """What a session that has subscribed to a filter reads when it is behind: how many streams, and how."""
    wanted = checked_filter(topic_filter).encode()

    async def asks(asking: Asking) -> tuple[list[GenerationRead], tuple[str, ...]]:
        async with Stored(asking) as stored:
            return await inquiry.explain(asking, stored, wanted)

    found, missing = ask(data_dir, asks)
    if as_json:
        print_json({"filter": topic_filter, "generations": facts(found)})
        end(missing)
        return
    print(
        f"{topic_filter} matches {_matching(found)} in {number(sum(one.read for one in found), 'stream')} "
        f"of {sum(one.streams for one in found):,}"
    )
    for one in found:
        _print_generation(one)
    end(missing)


# ---------------------------------------------------------------------------------------------------- words


def _tree(found: list[Pattern]) -> _Level:
    root = _Level()
    for one in found:
        at = root
        for level in one.pattern.split("/"):
            at = at.below.setdefault(level, _Level())
            at.messages += one.messages
            at.bytes += one.bytes
            at.estimated |= one.estimated
    return root


def _print_tree(root: _Level, depth: int) -> None:
    lines: list[tuple[str, _Level]] = []
    # An explicit stack: a topic may have many levels.
    stack = [(name, level, 0) for name, level in sorted(root.below.items(), reverse=True)]
    while stack:
        name, level, indent = stack.pop()
        lines.append((f"{'  ' * indent}{name or '(empty)'}", level))
        if indent + 1 < depth:
            stack += [(below, at, indent + 1) for below, at in sorted(level.below.items(), reverse=True)]
    width = max(len(line) for line, _ in lines)
    for line, level in lines:
        about = "about " if level.estimated else ""
        print(f"{line:<{width}}  {about}{number(level.messages, 'message')}, {amount(level.bytes)}")


def _matching(found: list[GenerationRead]) -> str:
    count = number(sum(one.matching for one in found), "message")
    return count if all(one.counted for one in found) else f"at least {count}"


def _print_generation(one: GenerationRead) -> None:
    kind = "" if one.retention_class == "default" else f", class {one.retention_class}"
    total = f" of {one.messages:,}" if one.messages is not None else ""
    print(
        f"shard {one.shard}, generation {one.generation} ({one.layout}{kind}{', sealed' if one.sealed else ''}): "
        f"{number(one.read, 'stream')} of {one.streams:,}, {one.whole:,} as a whole and {one.by_index:,} by the index; "
        f"{'' if one.counted else 'at least '}{one.matching:,}{total} messages"
    )
    for stream in one.told[:STREAMS_PRINTED]:
        how = f"  by its level{'s' * (len(stream.wanted) > 1)} {', '.join(stream.wanted)}" if stream.wanted else ""
        print(f"  {stream.pattern}{how}")
    if one.read > STREAMS_PRINTED:
        print(f"  and {one.read - STREAMS_PRINTED:,} more")
