"""docs/layouts.md: what the layouts are, and the table of what each costs, written by `make bench-storage`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.storage.choice import AMOUNTS, BASE, Wanted
from benchmarks.storage.measured import Folded, Opened, Read, Write
from benchmarks.storage.rounds import ratio
from benchmarks.storage.shapes import Shape

COMMITS = (1, 10, 100, 1000)


def default_sentence(default: str) -> str:
    return f"The default is `{default}` with one site, and `{BASE}` with several."


@dataclass(frozen=True, slots=True)
class Reads:
    """What was read of one shape, per layout in order; what a shape has no filter for is missing."""

    everything: list[Read]
    small: list[Read]
    plus_one: list[Read]
    plus_two: list[Read]
    one: list[Read]
    one_folded: list[Read]
    cold: list[Read]


@dataclass(frozen=True, slots=True)
class Figures:
    """One shape. writes: by size of commit, per layout its rounds."""

    shape: Shape
    messages: int
    writes: dict[int, list[list[Write]]]
    default_gc: list[list[Write]]
    reads: Reads
    folded: list[Folded]
    opened: list[Opened]


_HEAD = """# Layouts

A layout decides how messages lie in a generation of the store. It is chosen by `durable_storage.messages.layout.type`; a change applies
to the next generation, old ones stay as they were made. Every layout reads the same, whatever its cost. Bytes on disk: docs/formats.md.

| layout | what it is | good for |
|---|---|---|
| `pagestream` | a key per message in the order of positions, and an index over the varying levels of its topic that is written later in \
sorted pages. Streams without varying levels: batches of 16 to 64 messages as long as commits have that many | everything with one site |
| `skipstream` | a key per message in the order of positions, and an index key per varying level of its topic \
| several sites; what EMQX has |
| `record_batch` | streams with varying levels: a key per message, and an index that is written later in sorted pages. Streams without: \
the same batches. Each value has a checksum of its own beside RocksDB's | whoever wants to check each value |
| `wildcard_optimized` | keys of bit fields: epochs of time, and in an epoch in the order of the varying levels \
| what EMQX 5.7 had; sessions that are behind the tail cache get what is new when its epoch is over |

{sentence} The index of `skipstream` lies in the records, so all copies get it; the pages of
`pagestream` and `record_batch` would be on one site only, and are refused there. In a cluster that begins with a backup of one site
that had them they are read as ever, and another generation is begun at once.

## The choice

Another layout than `skipstream` is the default when all of its ratios to that hold, run after run, and when a message of the tenth
million in a generation costs at most 1.15 times what one of the first does (`make show-03 ARGS=3`). Medians of ratios between turns; of
one device read, medians over stores of {amounts} messages, each of whose ratios is in brackets: RocksDB merges the files of a layout
at amounts of its own, and what has just been merged is read three times as fast.

{choice}

## What each costs

{about}

us are microseconds of CPU, per message unless it says per filter. *write* is all threads of the process, flushing and compaction too,
without the sync: that costs the same in every layout, and at commits of 1 it is nearly everything. *seeks* and *entries* are what
the engine was asked for and what it handed out, per message. *first* is the time to the first message. *cold* is the clock, per filter,
with the file cache emptied of the store. The block cache holds the whole store, so that layouts are
compared and not file reads: with a store much larger than the cache, every block that a read touches costs tens of microseconds in either
layout. Garbage collection is set as in the broker; one line has Python's default.
"""


def render(about: str, default: str, choice: Mapping[str, Sequence[Wanted]], shapes: Sequence[Figures], layouts: Sequence[str]) -> str:
    """choice: by layout that may be the default."""
    choices = "\n\n".join([_choice(layout, wanted) for layout, wanted in choice.items()])
    amounts = ", ".join(f"{amount * 100_000:,}" for amount in AMOUNTS)
    parts = [_HEAD.format(sentence=default_sentence(default), amounts=amounts, choice=choices, about=about)]
    parts += [_shape(figures, layouts) for figures in shapes]
    return "\n".join(parts)


def _choice(layout: str, wanted: Sequence[Wanted]) -> str:
    failed = [each for each in wanted if not each.holds]
    verdict = f"misses {len(failed)} of {len(wanted)}" if failed else f"reaches all {len(wanted)}"
    lines = [f"`{layout}` {verdict}:", "", f"| what | ratio | wanted | {layout}, us | {BASE}, us | |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {each.name} | {each.ratio} | {each.limit} | {each.ours:.2f} | {each.theirs:.2f} | {'' if each.holds else 'missed'} |"
        for each in wanted
    ]
    return "\n".join(lines)


def _shape(figures: Figures, layouts: Sequence[str]) -> str:
    shape, reads = figures.shape, figures.reads
    lines = [f"### {shape.name}: {shape.what}", "", f"{figures.messages:,} messages of about {shape.body_bytes} bytes.", ""]
    lines += [f"| | {' | '.join(layouts)} | ratio of the first two |", f"|---|{'---|' * (len(layouts) + 1)}"]

    def line(name: str, values: Sequence[float], share: float | None = None, digits: int = 2) -> None:
        ratio_of = values[0] / values[1] if share is None and values[1] else share
        shown = " | ".join(f"{value:.{digits}f}" for value in values)
        lines.append(f"| {name} | {shown} | {'' if ratio_of is None else f'{ratio_of:.2f}'} |")

    def written(name: str, rounds: list[list[Write]]) -> None:
        process = [[each.process_us for each in one] for one in rounds]
        line(name, [median(one) for one in process], ratio(process[0], process[1]))

    def reading(name: str, found: list[Read]) -> None:
        if found and all(each.messages for each in found):
            line(f"{name}, us", [each.us for each in found])
            line(f"{name}, first, us", [each.first_us for each in found], digits=0)
            seeks = " | ".join(f"{each.seeks:.2f} + {each.entries:.2f}" for each in found)
            lines.append(f"| {name}, seeks + entries | {seeks} | |")

    for commit in COMMITS:
        written(f"write, commits of {commit}, us", figures.writes[commit])
    written("write, commits of 100, Python's own gc, us", figures.default_gc)
    line("on disk, bytes per message", [each.bytes_per_message for each in figures.opened], digits=0)
    reading("everything, 100 at a time", reads.everything)
    reading("everything, 5 at a time", reads.small)
    reading(f"one + (`{shape.plus_one.decode()}`)", reads.plus_one)
    reading(f"two + (`{shape.plus_two.decode()}`)", reads.plus_two)
    if reads.one:
        example = f"`{shape.one(1234).decode()}`" if shape.one is not None else ""
        reading(f"one of {shape.ones:,} ({example}), per filter", reads.one)
        reading("the same, folded", reads.one_folded)
        line("the same, cold, us by the clock", [each.us for each in reads.cold], digits=0)
    line("idle work after sealing, us per message", [each.us_per_message for each in figures.folded])
    line("longest slice of idle work, ms", [each.slice_max_ms for each in figures.folded])
    line("open, ms", [each.open_ms for each in figures.opened], digits=0)
    return "\n".join([*lines, ""])
