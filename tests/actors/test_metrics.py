"""Figures: what processes write, what a scrape makes of it, and that nothing that only grows ever falls."""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from actors.admin.server import AdminServer, PortTaken
from actors.alarms import Alarm, raise_alarm, read_alarms
from actors.metrics import docs, of_gateway, of_node, of_process, of_session, of_shard
from actors.metrics.catalogue import METRICS, NOT_HERE
from actors.metrics.latency import BOUNDS, WINDOW_S, Latency, Recent
from actors.metrics.meter import Meter
from actors.metrics.names import Metric
from actors.metrics.of_gateway import GatewayFigures
from actors.metrics.of_shard import ShardFigures
from actors.metrics.scrape import FOLD_ABOVE, Scrape, fold
from actors.metrics.sheet import DIRECTORY, FILE_BYTES, Sheet, incarnation
from actors.metrics.to_ray import FIGURES
from actors.topology import Topology
from config.dump import dump_json
from config.load import load
from gateway.options import Counters as GatewayCounters
from sessions.frames import Deliver
from sessions.options import Counters as SessionCounters
from shards.counting import Counting
from shards.engine_memory import MemoryEngine
from shards.entries import Check, Publish
from tests.actors.places import topology_in
from tests.shards.harness import Harness

COUNTED = of_process.STARTS
LEVEL = of_process.RESIDENT
SPREAD = of_process.LATE
WITHIN_S = 60.0


def dead(name: str, number: int) -> str:
    """An incarnation of a process that is not there: nobody's start is in the first ticks after the boot."""
    return f"{name}.{number + 1}.0"


@pytest.fixture
def topology(tmp_path: Path) -> Topology:
    made = topology_in(tmp_path)
    (made.run_dir / "topology.json").write_text(made.to_json())
    made.store_dir.mkdir()
    return made


def scraped(topology: Topology) -> dict[tuple[str, ...], float]:
    """By name and values of labels, in the order of their names."""
    return dict(samples(Scrape(topology).text()))


def samples(text: bytes) -> Iterator[tuple[tuple[str, ...], float]]:
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            # The parser gives every counter the ending that EMQX's have not.
            name = sample.name.removesuffix("_total") if sample.name.startswith("emqx_") else sample.name
            yield (name, *[value for _, value in sorted(sample.labels.items())]), sample.value


# ---------------------------------------------------------------------- times


def test_a_time_is_in_the_bucket_whose_bound_it_does_not_pass() -> None:
    """As `le` says; what passes all is counted too."""
    latency = Latency()
    for seconds in (0.0, BOUNDS[0], BOUNDS[1], BOUNDS[-1] + 1):
        latency.note(seconds)
    assert latency.buckets == [2, 1, *[0] * (len(BOUNDS) - 2), 1]
    assert latency.count == 4 and latency.sum == pytest.approx(sum(BOUNDS[:2]) + BOUNDS[-1] + 1)


def test_a_mean_is_that_of_the_last_five_minutes() -> None:
    """What was before them counts no more; where nothing was it is 0."""
    recent = Recent()
    assert recent.mean(0, 0, 0.0) == 0
    count, total, now, mean = 0, 0.0, 0.0, 0.0
    for now in range(1, 601):
        count, total = count + 2, total + 2 * (1.0 if now <= 300 else 5.0)
        mean = recent.mean(now, count, total)
        if now <= 300:
            assert mean == 1
    assert mean == pytest.approx(5, rel=0.02)
    assert recent.mean(now + WINDOW_S + 10, count, total) == 0


# ---------------------------------------------------------------------- what there is


def test_all_that_is_counted_is_scraped() -> None:
    """A counter that is added to a core is a metric, or this says so."""
    assert of_gateway.COUNTERS.keys() >= {each.name for each in fields(GatewayCounters)}
    assert of_session.COUNTERS.keys() == {each.name for each in fields(SessionCounters)}
    told = {name for name in Harness().core.counters if not name.startswith("gc_found_")}
    known = {*of_shard.COUNTERS, *of_shard.GAUGES}
    assert told <= {*known, "reads", "read_ns"}
    assert known - told == {"quota_bytes", "quota_taken_bytes", "reads_damaged", "generations_lost"}


def test_names_are_those_of_prometheus_or_of_emqx_and_there_once() -> None:
    """Ours end in _total when they only grow; those of EMQX are spelled as there, and none of them is also said to be missing."""
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert metric.help.endswith("."), metric
        if metric.name.startswith("holdfast_"):
            assert metric.name.endswith("_total") == (metric.kind == "counter"), metric
        else:
            assert metric.name.startswith("emqx_") and not metric.name.endswith("_total") and not metric.name.startswith(tuple(NOT_HERE))


def test_the_page_of_metrics_is_current() -> None:
    """docs/metrics.md has a line for each, as `make docs` would write it now."""
    text = docs.PAGE.read_text(encoding="utf-8")
    assert docs.page(text) == text, "run `make docs`"
    assert [metric.name for metric in METRICS if f"| `{metric.name}` |" not in text] == []


def test_names_in_the_text_of_the_page_are_there() -> None:
    """What a reader is told to look at."""
    text = docs.PAGE.read_text(encoding="utf-8").partition(docs.MARK)[0]
    named = set(re.findall(r"`((?:holdfast|emqx)_[a-z_]+[a-z])`", text))
    assert len(named) > 10 and named <= {metric.name for metric in METRICS}


def test_every_metric_is_scraped_also_when_nobody_has_told_one(topology: Topology) -> None:
    """A dashboard of a broker that has just begun is empty, not broken; and every line says what it is."""
    (topology.run_dir / DIRECTORY).mkdir()
    text = Scrape(topology).text().decode()
    for metric in METRICS:
        assert f"# TYPE {metric.name} {metric.kind}\n" in text and f"# HELP {metric.name} {metric.help}\n" in text


@pytest.mark.parametrize("file", ["grafana/holdfast.json", "prometheus/alerts.yml"])
def test_what_dashboards_and_alerts_ask_for_is_there(file: str) -> None:
    """Every name, and every label that a legend or a sentence shows, is one of a metric that is asked for beside it."""
    text = (docs.PAGE.parent.parent / "deploy" / file).read_text(encoding="utf-8")
    asked = re.findall(r'"expr": "(.*)",\n *"legendFormat": "(.*)"', text) or re.findall(
        r"expr: ((?:.|\n)*?)\n +(?:for|annotations):((?:.|\n)*?)- alert", text
    )
    assert len(asked) > 10
    of_sample = {sample: metric for metric in METRICS for sample in metric.samples}
    for expression, shown in asked:
        names = set(re.findall(r"\b(?:holdfast|emqx)_\w+", expression))
        assert names <= of_sample.keys(), expression
        assert names or "up{" in expression
        labels = {"instance", *[label for name in names for label in of_sample[name].labels]}
        assert set(re.findall(r"{{ *(?:\$labels\.)?(\w+) *}}", shown)) <= labels, (expression, shown)


def test_what_is_told_to_ray_is_there_and_documented() -> None:
    """Sums over all processes, or the worst of them; by the names that Ray gives them, in docs/ray.md."""
    samples = {sample for metric in METRICS for sample in metric.samples}
    page = (docs.PAGE.parent / "ray.md").read_text(encoding="utf-8")
    for figure in FIGURES:
        assert set(figure.of) <= samples, figure
        assert f"| `ray_{figure.name}{'_total' if figure.counts else ''}` |" in page
        values = {name: [2.0, 5.0] for name in figure.of}
        assert figure.value({}) == 0 and figure.value(values) in (5.0, 7.0 * len(figure.of))


# ---------------------------------------------------------------------- files


def write(topology: Topology, who: str, number: float) -> None:
    sheet = Sheet(topology.run_dir, who)
    latency = Latency()
    latency.note(0.3)
    sheet.now_s = number
    sheet.count(COUNTED, number, "shard-0")
    sheet.level(LEVEL, number, "shard-0")
    sheet.spread(SPREAD, latency, "shard-0")
    sheet.close()


def test_counts_of_the_dead_stay_and_their_levels_go(topology: Topology) -> None:
    """Three processes of one name, one after the other; and what two live ones have is not mixed up."""
    for number in range(3):
        write(topology, dead("shard-0", number), 100 + number)
    write(topology, incarnation("shard-0"), 7)
    found = scraped(topology)
    assert found[COUNTED.name, "shard-0"] == 100 + 101 + 102 + 7
    assert found[LEVEL.name, "shard-0"] == 7
    assert found[f"{SPREAD.name}_count", "shard-0"] == 4 and found[f"{SPREAD.name}_sum", "shard-0"] == pytest.approx(1.2)
    assert found[f"{SPREAD.name}_bucket", "0.2", "shard-0"] == 0 and found[f"{SPREAD.name}_bucket", "0.5", "shard-0"] == 4


@pytest.mark.slow
def test_the_files_of_many_dead_become_one(topology: Topology) -> None:
    """However often a process dies, a scrape reads few files, and says the same."""
    deaths = 3 * FOLD_ABOVE
    total = 0
    for number in range(deaths):
        write(topology, dead("shard-0", number), number)
        total += number
        if number % FOLD_ABOVE == 1:
            assert scraped(topology)[COUNTED.name, "shard-0"] == total
    found = scraped(topology)
    assert found[f"{SPREAD.name}_count", "shard-0"] == deaths and found[f"{SPREAD.name}_bucket", "0.5", "shard-0"] == deaths
    assert len(list((topology.run_dir / DIRECTORY).iterdir())) <= 4 * FOLD_ABOVE


class Killed(BaseException):
    """In the middle of something."""


def test_a_process_killed_while_it_makes_its_files_hides_nobody_s_figures(topology: Topology, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that has a name and no bytes is none that can be read, for as long as the run lasts."""
    write(topology, incarnation("shard-0"), 3)

    def killed(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(os, "posix_fallocate", killed)
    with pytest.raises(Killed):
        Sheet(topology.run_dir, dead("shard-1", 1))
    assert scraped(topology)[COUNTED.name, "shard-0"] == 3


def test_files_that_are_folded_and_still_there_are_not_counted_twice(topology: Topology) -> None:
    """Whoever folded was killed before it had taken them away."""
    for number in range(3):
        write(topology, dead("shard-0", number), 10)
    directory = topology.run_dir / DIRECTORY
    paths = sorted(directory.glob("counter_*"))
    kept = {path: path.read_bytes() for path in paths}
    fold(directory / "counter_folded.db", paths)
    for path, data in kept.items():
        path.write_bytes(data)
    (directory / "counter_folded.part").write_bytes(b"of one that was killed earlier")
    assert scraped(topology)[COUNTED.name, "shard-0"] == 30
    assert [path for path in paths if path.exists()] == []
    write(topology, dead("shard-0", 3), 10)
    assert scraped(topology)[COUNTED.name, "shard-0"] == 40


def test_a_file_never_grows(topology: Topology) -> None:
    """Its room was taken when it was made; what a label with too many values would need more is left out, and named."""
    many = Metric("holdfast_many_total", "counter", ("which",), "Many.")
    sheet = Sheet(topology.run_dir, incarnation("shard-0"))
    for number in range(2000):
        sheet.count(many, 1, str(number))
    sheet.close()
    assert list(sheet.left_out) == [many.name]
    assert {path.stat().st_size for path in (topology.run_dir / DIRECTORY).iterdir()} == {FILE_BYTES}
    assert all(path.stat().st_blocks * 512 >= FILE_BYTES for path in (topology.run_dir / DIRECTORY).iterdir())


def test_all_figures_of_any_process_fit(topology: Topology) -> None:
    """Into half of a file, so that there is room for what is added later."""
    taken = {kind: sum([len(each.name) * 2 + 120 for each in of_shard.METRICS if each.kind == kind]) for kind in ("counter", "gauge")}
    assert max(taken.values()) < FILE_BYTES / 2


# ---------------------------------------------------------------------- who writes


@pytest.mark.slow
async def test_a_process_writes_by_itself_and_says_its_last_word(topology: Topology) -> None:
    """Also one that could not begin, as there was no room; what fails is its log's business and nobody else's."""
    count = 3
    written = asyncio.Event()

    def measure(sheet: Sheet) -> None:
        sheet.count(of_session.COUNTERS["sent"], count, "0")
        written.set()

    place = topology.run_dir / DIRECTORY
    place.write_text("in the way")
    meter = Meter(topology.run_dir, "session-0", measure)
    meter.start()
    await asyncio.sleep(0)
    meter.write()
    place.unlink()
    await asyncio.wait_for(written.wait(), WITHIN_S)
    assert scraped(topology)["holdfast_session_sent_total", "0"] == 3
    count = 5
    meter.stop()
    found = scraped(topology)
    assert found["holdfast_session_sent_total", "0"] == 5 and found[COUNTED.name, "session-0"] == 1
    assert found[of_process.CPU.name, "session-0"] > 0 and found[LEVEL.name, "session-0"] > 1 << 20
    meter.write()


async def test_a_figure_that_cannot_be_made_ends_nobody(topology: Topology) -> None:
    """The others are written."""

    def measure(sheet: Sheet) -> None:
        sheet.count(of_session.COUNTERS["sent"], 1, "0")
        raise KeyError("a bug of ours")

    meter = Meter(topology.run_dir, "session-0", measure)
    meter.start()
    async with asyncio.timeout(WITHIN_S):
        while not list((topology.run_dir / DIRECTORY).glob("counter_*")):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    meter.stop()
    assert scraped(topology)["holdfast_session_sent_total", "0"] == 1


# ---------------------------------------------------------------------- a shard, a gateway


def test_a_batch_counts_when_it_is_committed(topology: Topology) -> None:
    """With its messages and payloads; a record without messages is a commit and no batch, and what is under way is lag."""
    now = 100.0
    figures, counting = ShardFigures(0, lambda: now), Counting(MemoryEngine())
    harness = Harness()

    def told() -> dict[tuple[str, ...], float]:
        sheet = Sheet(topology.run_dir, incarnation("shard-0"))
        sheet.now_s = now
        counted = {**dict.fromkeys((*of_shard.COUNTERS, *of_shard.GAUGES), 0), **harness.core.counters}
        figures.tell(sheet, counted, {("skipstream", "hit"): 3, ("pagestream", "hit"): 1}, 1, 0)
        sheet.close()
        return scraped(topology)

    def emqx(found: dict[tuple[str, ...], float], name: str) -> float:
        return found[f"emqx_ds_{name}", "messages", "0"]

    counting.stored, counting.payload_bytes = 3, 300
    figures.submitted(10, counting)
    figures.submitted(11, counting)
    counting.stored, counting.payload_bytes = 5, 340
    figures.submitted(12, counting)
    now = 100.5
    found = told()
    assert emqx(found, "egress_messages") == emqx(found, "egress_batches") == emqx(found, "egress_bytes") == 0
    assert found[of_shard.LAG.name, "0"] == 0.5
    figures.committed(11)
    found = told()
    assert (emqx(found, "egress_messages"), emqx(found, "egress_batches"), emqx(found, "egress_bytes")) == (3, 1, 300)
    assert found[f"{of_shard.COMMIT.name}_count", "0"] == 2
    now = 101.5
    figures.committed(12)
    found = told()
    assert (emqx(found, "buffer_messages"), emqx(found, "buffer_batches"), emqx(found, "buffer_bytes")) == (5, 2, 340)
    assert emqx(found, "egress_flush_time") == pytest.approx(1e6) and found["emqx_messages_persisted", "messages", "0"] == 5
    assert emqx(found, "storage_skipstream_lts_hit") == 4
    assert found[of_shard.LAG.name, "0"] == 0
    figures.submitted(13, counting)
    counting.stored = 6
    figures.submitted(14, counting)
    figures.lost()
    assert emqx(told(), "egress_batches_failed") == 1


def test_publishing_is_timed_from_the_frame_to_its_answer() -> None:
    """Frames without a PUBLISH are not, and a delivery is as old as its first message says."""
    now = 5.0
    figures = GatewayFigures(0, lambda: now)
    publish = Publish(b"c", 1, False, 0, b"\x02", [1], [b"t"], [b"\0x"])
    figures.asked(0, 1, [Check([]), publish])
    figures.asked(0, 2, [Check([])])
    now = 5.3
    figures.answered(0, 2)
    assert figures.publish.count == 0
    figures.answered(0, 1)
    figures.answered(0, 1)
    assert figures.publish.count == 1 and figures.publish.sum == pytest.approx(0.3)
    figures.delivered(Deliver([(b"t", b"\0x", 1000, 0)], []), 3500)
    assert figures.delivery.sum == 2.5


# ---------------------------------------------------------------------- who answers


def test_a_scrape_knows_what_no_process_alone_knows(topology: Topology) -> None:
    """Who there has to be, alarms, and how much disk is taken."""
    raise_alarm(topology.run_dir, Alarm("shard-0", "quota", "full"))
    (topology.store_dir / "some").write_bytes(bytes(100_000))
    (topology.run_dir / DIRECTORY).mkdir()
    found = scraped(topology)
    assert found[of_node.EXPECTED.name, "gateway"] == 1 and found[of_node.RUNNING.name, "gateway"] == 0
    assert found[of_node.ALARM.name, "quota", "shard-0"] == 1
    assert found[of_node.DISK.name, "messages"] >= 100_000


async def get(port: int, path: str) -> tuple[str, bytes]:
    """(status line, body)."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    data = await asyncio.wait_for(reader.read(), WITHIN_S)
    writer.close()
    head, _, body = data.partition(b"\r\n\r\n")
    return head.split(b"\r\n")[0].decode(), body


def listening_on(topology: Topology, port: int) -> Topology:
    config = load(sets=(f"admin.listen=127.0.0.1:{port}",), environ={})
    return Topology.from_json(
        topology.to_json().replace('"config_json": "{}"', f'"config_json": {__import__("json").dumps(dump_json(config))}')
    )


@pytest.mark.slow
async def test_the_admin_process_serves_what_is_scraped_and_comes_back_where_it_was(topology: Topology) -> None:
    """At any free port, which is announced; nothing else is there."""
    write(topology, dead("shard-0", 1), 41)
    topology = listening_on(topology, 0)
    server = AdminServer(topology, 0)
    (listener,) = (await server.start()).listeners
    assert (await server.health()).ready and listener.kind == "admin" and listener.owner == "admin-0"
    status, body = await get(listener.port, "/metrics")
    assert status == "HTTP/1.1 200 OK" and dict(samples(body))[COUNTED.name, "shard-0"] == 41
    assert (await get(listener.port, "/figures"))[0] == "HTTP/1.1 404 Not Found"
    await server.stop()
    again = AdminServer(topology, 0)
    assert (await again.start()).listeners == (listener,)
    await again.stop()


async def test_a_port_that_somebody_has_is_one_sentence_and_an_alarm_until_it_is_free(topology: Topology) -> None:
    """The host tries again; whoever looks at `status` meanwhile knows why."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        server = AdminServer(listening_on(topology, port), 0)
        with pytest.raises(PortTaken, match=rf"^the port {port} on 127.0.0.1 cannot be used: Address already in use \(admin.listen\)$"):
            await server.start()
        (alarm,) = read_alarms(topology.run_dir)
        assert alarm.name == "admin-0" and str(port) in alarm.cause
    (listener,) = (await server.start()).listeners
    assert listener.port == port and read_alarms(topology.run_dir) == []
    (topology.run_dir / DIRECTORY).mkdir()
    (topology.run_dir / "topology.json").unlink()
    status, body = await get(port, "/metrics")
    assert status.startswith("HTTP/1.1 503") and body == b"the figures cannot be read: No such file or directory\n"
    await server.stop()
