"""A flame graph of what py-spy has seen: a box for each function, as wide as it was seen often, on top of whoever called it.

A picture without any script: each box says in its title what it is, and browsers show that when it is pointed at.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final

WIDTH: Final = 1200
ROW: Final = 17
SMALLEST: Final = 0.5
"""Pixels; narrower boxes are left out."""
LETTER: Final = 6.3
COLOURS: Final = {
    "gateway": "#e8a33d", "mqtt": "#d9c24a", "shards": "#d1603d", "sessions": "#7fa650", "actors": "#b9b2a6", "access": "#8aa0b8",
}  # fmt: skip
OTHER: Final = "#ddd7cc"


@dataclass(slots=True)
class Box:
    """A function where it was called. looks: with all that it calls."""

    name: str
    looks: int = 0
    calls: dict[str, Box] = field(default_factory=dict)

    def add(self, stack: Sequence[str], looks: int) -> None:
        self.looks += looks
        if stack:
            self.calls.setdefault(stack[0], Box(stack[0])).add(stack[1:], looks)

    @property
    def depth(self) -> int:
        return 1 + max((box.depth for box in self.calls.values()), default=0)


def drawn(stacks: Iterable[tuple[Sequence[str], int]], what: str) -> str:
    """An SVG. stacks: frames such as `handle (shards/core.py:230)`, the outermost first, and how often they were seen."""
    root = Box(what)
    for stack, looks in stacks:
        root.add([_plain(frame) for frame in stack], looks)
    height = ROW * root.depth
    boxes: list[str] = []
    _draw(root, 0.0, WIDTH / max(1, root.looks), height - ROW, root.looks, boxes)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="monospace" font-size="10.5">'
    return "\n".join([head, *boxes, "</svg>", ""])


def _plain(frame: str) -> str:
    """Without its line: a function is one box."""
    name, _, place = frame.rpartition(" (")
    return f"{name} ({place.rpartition(':')[0]})" if name else frame


def _draw(box: Box, x: float, scale: float, y: int, all_looks: int, boxes: list[str]) -> None:
    width = box.looks * scale
    if width < SMALLEST:
        return
    place = box.name.rpartition("(")[2].partition("/")[0]
    title = f"{box.name}: {100 * box.looks / max(1, all_looks):.1f} %"
    letters = int((width - 4) / LETTER)
    words = box.name if len(box.name) <= letters else f"{box.name[: letters - 1]}…" if letters > 3 else ""
    text = f'<text x="{x + 2:.1f}" y="{y + 12}">{escape(words)}</text>' if words else ""
    colour = COLOURS.get(place, OTHER)
    boxes.append(
        f'<g><title>{escape(title)}</title><rect x="{x:.1f}" y="{y}" width="{max(0.1, width - 0.3):.1f}" height="{ROW - 1}" '
        f'fill="{colour}"/>{text}</g>'
    )
    for each in sorted(box.calls.values(), key=lambda call: -call.looks):
        _draw(each, x, scale, y - ROW, all_looks, boxes)
        x += each.looks * scale
