"""Scripts that find out what a page shows, and whether everybody can read it."""

from __future__ import annotations

import json

# Rows of a table by its label, cell by cell.
ROWS = """(label) => [...document.querySelectorAll(`table[aria-label="${label}"] tbody tr`)]
    .map((row) => [...row.cells].map((cell) => cell.innerText.trim()))"""

# What is wider than the window and is not made to be scrolled.
WIDE = """(() => {
    const width = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= width) return [];
    return [...document.querySelectorAll("body *")].filter((one) => one.getBoundingClientRect().right > width + 1)
        .map((one) => `${one.tagName}.${one.className}: ${Math.round(one.getBoundingClientRect().right)} of ${width}`).slice(0, 5);
})()"""

# Texts whose contrast with what lies behind them is below the 4.5 that WCAG 2 wants of text of this size.
PALE = """(() => {
    const parts = (colour) => {
        const numbers = colour.match(/[\\d.]+/g).map(Number);
        return [...numbers.slice(0, 3).map((one) => (colour.startsWith("color(") ? one * 255 : one)), numbers[3] ?? 1];
    };
    const channel = (one) => (one / 255 <= 0.03928 ? one / 255 / 12.92 : ((one / 255 + 0.055) / 1.055) ** 2.4);
    const light = ([red, green, blue]) => 0.2126 * channel(red) + 0.7152 * channel(green) + 0.0722 * channel(blue);
    const behind = (node) => {
        for (let at = node; at; at = at.parentElement) {
            const found = parts(getComputedStyle(at).backgroundColor);
            if (found[3] > 0.99) return found;
        }
        return [255, 255, 255, 1];
    };
    const pale = [];
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let text = texts.nextNode(); text; text = texts.nextNode()) {
        const node = text.parentElement;
        if (!text.data.trim() || !node.getClientRects().length) continue;
        if (node.closest(".unseen, script, style, noscript, dialog:not([open])")) continue;
        const [one, other] = [light(parts(getComputedStyle(node).color)), light(behind(node))].sort((a, b) => b - a);
        const contrast = (one + 0.05) / (other + 0.05);
        if (contrast < 4.5) pale.push(`${text.data.trim().slice(0, 30)} (${node.className}): ${contrast.toFixed(2)}`);
    }
    return pale;
})()"""

# Whether what is behind everything is dark.
DARK = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).every((one) => Number(one) < 60)"

# Timers that are further away than a moment wait until the test lets them come: `due()` does, and says how many there were.
TIMERS = """(() => {
    const [set, clear] = [window.setTimeout.bind(window), window.clearTimeout.bind(window)];
    const waiting = new Map();
    let last = 1e9;
    window.setTimeout = (then, ms = 0, ...rest) => {
        if (ms < 1000) return set(then, ms, ...rest);
        waiting.set((last += 1), () => then(...rest));
        return last;
    };
    window.clearTimeout = (id) => { if (!waiting.delete(id)) clear(id); };
    window.waiting = waiting;
    window.due = () => { const all = [...waiting.values()]; waiting.clear(); all.forEach((then) => then()); return all.length; };
    let hidden = false;
    Object.defineProperty(Document.prototype, "hidden", { get: () => hidden });
    window.hide = (wanted) => { hidden = wanted; document.dispatchEvent(new Event("visibilitychange")); };
})()"""


def rows(label: str) -> str:
    return f"({ROWS})({json.dumps(label)})"


def shows(text: str) -> str:
    """Whether this can be read somewhere in the view, and nothing is on its way."""
    return f"!document.querySelector('main [aria-busy]') && document.querySelector('main').innerText.includes({json.dumps(text)})"
