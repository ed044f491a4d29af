"""Writes docs/configuration.md from `config.schema`; `make docs` runs it and a test holds the page current."""

from __future__ import annotations

from pathlib import Path

from config.dump import literal
from config.settings import BRIDGES, LISTENERS, ZONES, Setting, all_settings, named_sections, named_settings, plain, section_names
from config.unbuilt import is_unbuilt

PAGE = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"

INTRODUCTION = """\
# Configuration

<!-- Made by `make docs` from config/schema.py; do not edit. -->

Everything has a default: an empty configuration runs. A value comes from, later ones winning:

1. the default below;
2. the TOML file named by `holdfast up --config FILE`; of bridges, then, `bridges.toml` in the data directory, which commands write;
3. the environment: `HOLDFAST__SECTION__KEY`, such as `HOLDFAST__MQTT__MAX_INFLIGHT=64` (EMQX: `EMQX_MQTT__MAX_INFLIGHT`, which is not
   read, with a notice);
4. the command line: `--set section.key=value`, such as `--set mqtt.max_inflight=64`; `--data-dir` and `--port` are short for
   `data_dir` and the port of `listeners.tcp.bind`.

```toml
data_dir = "/var/lib/holdfast"

[listeners.tcp]
bind = "127.0.0.1:1883"

[durable_sessions]
message_retention_period = "3d"
```

`holdfast config check --config FILE` says what is wrong with a file, one sentence for each mistake: the key, the value found,
where, and what is allowed. `holdfast config show` prints what would be used and where each value comes from;
`holdfast config schema` prints a JSON Schema for editors. A key that EMQX has under another name is taken, and one that means nothing
here is left; a notice says so, of `up`, `config` and `reload`, and `holdfast doctor` says it too ([parity.md](parity.md)).

**Durations** are written `"100ms"`, `"10s"`, `"15m"`, `"12h"`, `"7d"`; a number alone counts seconds. **Sizes** are written
`"100KB"` (a thousand) or `"64MiB"` (1024 × 1024); a number alone counts bytes. `"infinity"` is a value where the range says so.

`holdfast reload` has a running broker read its configuration again (operations.md, "Changing settings while it runs"). The last column
says when a change takes effect: **at once**; **with the next generation** of messages, those that are there stay as they are; **at the
next start** of the broker; **never, fixed**: it is recorded in the store at its first start and cannot be changed for it afterwards.
What a connection or a session was given when it began it keeps: *at once* is for those that begin from then on.
"""

EPOCHS = """\
How long an epoch of `wildcard_optimized` lasts, which is also the longest that it delays what is read behind `tail_cache_bytes`:

| `epoch_bits` | an epoch |
|---|---|
"""
EPOCH_BITS = (1, 2, 10, 14, 17, 20, 21, 24, 64)
_AFTER = "durable_storage.messages.layout"
_UNITS = (("d", 86_400_000_000), ("h", 3_600_000_000), ("min", 60_000_000), ("s", 1_000_000), ("ms", 1_000), ("µs", 1))


def epoch(bits: int) -> str:
    """2 to the power of this many microseconds, in words."""
    if bits == 64:
        return "one for ever: nothing is delayed"
    unit, size = next((unit, size) for unit, size in _UNITS if 2**bits >= size)
    return f"{2**bits / size:.3g} {unit}"


def _row(setting: Setting) -> str:
    name = setting.key.rpartition(".")[2]
    default = "unset" if setting.default is None else literal(plain(setting.default))
    unit = f" ({setting.unit})" if setting.unit else ""
    allowed = "its default only: not built yet" if is_unbuilt(setting.key) else setting.allowed + unit
    cells = (f"`{name}`", f"`{default}`", allowed, setting.why, setting.effect)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def page() -> str:
    """The text of docs/configuration.md."""
    lines = [INTRODUCTION]
    by_section: dict[str, list[Setting]] = {}
    for setting in [
        *all_settings().values(),
        *named_settings(LISTENERS).values(),
        *named_settings(ZONES).values(),
        *named_settings(BRIDGES).values(),
    ]:
        by_section.setdefault(setting.key.rpartition(".")[0], []).append(setting)
    purposes = {"": "What stands above all sections in the file.", **section_names(), **named_sections()}
    for section, settings in by_section.items():
        title = f"## `[{section}]`" if section else "## Top of the file"
        lines += [
            title,
            "",
            purposes[section],
            "",
            "| Key | Default | Takes | What it means, and why | Takes effect |",
            "|---|---|---|---|---|",
        ]
        lines += [_row(setting) for setting in settings]
        lines.append("")
        if section == _AFTER:
            lines += [EPOCHS + "\n".join([f"| {bits} | {epoch(bits)} |" for bits in EPOCH_BITS]), ""]
    return "\n".join(lines)


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote docs/{PAGE.name}")


if __name__ == "__main__":
    main()
