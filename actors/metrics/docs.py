"""Writes the tables of docs/metrics.md from the catalogue; `make docs` runs it and a test holds the page current."""

from __future__ import annotations

from pathlib import Path

from actors.metrics import of_bridge, of_gateway, of_node, of_process, of_session, of_shard, of_site, of_survey
from actors.metrics.catalogue import NOT_HERE
from actors.metrics.names import Metric

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "metrics.md"
MARK = "<!-- From here on made by `make docs` from actors/metrics; do not edit. -->"


def page(before: str) -> str:
    """before: the page as it is, of which what stands above MARK is kept."""
    shard = of_shard.METRICS
    sections: list[tuple[str, tuple[Metric, ...]]] = [
        ("The whole broker", of_node.METRICS),
        ("Every process", of_process.METRICS),
        ("How far sessions are behind", of_survey.METRICS),
        ("Gateways", of_gateway.METRICS),
        ("Session actors", of_session.METRICS),
        ("Shards", tuple([each for each in shard if each.name.startswith("holdfast_")])),
        ("Bridges", of_bridge.METRICS),
        ("Several sites", of_site.METRICS),
        ("Shards, under EMQX's names", tuple([each for each in shard if not each.name.startswith("holdfast_")])),
    ]
    lines = [before.partition(MARK)[0] + MARK, ""]
    for title, metrics in sections:
        lines += [f"## {title}", "", "| Metric | Kind | Labels | What it says |", "|---|---|---|---|"]
        lines += [f"| `{each.name}` | {each.kind} | {', '.join(each.labels)} | {each.help} |" for each in metrics]
        lines.append("")
    lines += ["## Names of EMQX that are not here", "", "| Begins with | Why |", "|---|---|"]
    lines += [f"| `{name}` | {why} |" for name, why in NOT_HERE.items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
