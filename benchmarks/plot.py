"""Line charts as SVG, for pages: a logarithmic axis of amounts, a linear one of costs that begins at zero.

Written by hand because a plotting library would be a dependency of the project for one kind of picture. Colours are readable on a white
and on a dark page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

WIDTH: Final = 640
HEIGHT: Final = 320
LEFT, RIGHT, TOP, BOTTOM = 60, 150, 40, 50
COLOURS: Final = ("#2a7de1", "#e0662a", "#2f9e5f", "#a05cc8", "#888888")
INK: Final = "#808080"


@dataclass(frozen=True, slots=True)
class Series:
    """One line: amounts above zero, and what each costs."""

    name: str
    points: Sequence[tuple[float, float]]


def nice_step(top: float, parts: int = 5) -> float:
    """The distance between the marks of an axis from 0 to `top`: 1, 2 or 5 times a power of ten, and at most `parts` of them."""
    if top <= 0:
        return 1.0
    raw = top / parts
    power = 10.0 ** math.floor(math.log10(raw))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= raw * (1 - 1e-9))


def line_chart(title: str, x_label: str, y_label: str, series: Sequence[Series]) -> str:
    """The chart; a series without points is left out."""
    drawn = [each for each in series if each.points]
    if not drawn:
        raise ValueError(f"{title}: nothing to draw")
    xs = [math.log10(x) for each in drawn for x, _ in each.points]
    low, high = math.floor(min(xs)), max(math.ceil(max(xs)), math.floor(min(xs)) + 1)
    top_cost = max(y for each in drawn for _, y in each.points)
    step = nice_step(top_cost)
    top = max(step, math.ceil(top_cost / step - 1e-9) * step)

    def at(x: float, y: float) -> tuple[float, float]:
        along = (math.log10(x) - low) / (high - low) * (WIDTH - LEFT - RIGHT)
        return LEFT + along, HEIGHT - BOTTOM - y / top * (HEIGHT - TOP - BOTTOM)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12" fill="{INK}">',
        f"<title>{escape(title)}</title>",
        f'<text x="{LEFT}" y="22" font-size="14">{escape(title)}</text>',
    ]
    for number in range(round(top / step) + 1):
        _, y = at(10**low, number * step)
        out.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="{INK}" stroke-opacity="0.25"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{number * step:g}</text>')
    for power in range(low, high + 1):
        x, _ = at(10**power, 0)
        out.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{10**power:,}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    out.append(f'<text x="{middle:.1f}" y="{HEIGHT - 10}" text-anchor="middle">{escape(x_label)}</text>')
    out.append(
        f'<text x="14" y="{HEIGHT / 2:.1f}" text-anchor="middle" transform="rotate(-90 14 {HEIGHT / 2:.1f})">{escape(y_label)}</text>'
    )
    for number, each in enumerate(drawn):
        colour = COLOURS[number % len(COLOURS)]
        places = [at(x, y) for x, y in sorted(each.points)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        out.append(f'<text x="{WIDTH - RIGHT + 10}" y="{TOP + 14 + 18 * number}" fill="{colour}">{escape(each.name)}</text>')
    return "\n".join([*out, "</svg>", ""])
