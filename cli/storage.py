"""`holdfast storage`: looks into the stores of a broker, whether it runs or is stopped. Only `compact` and `reindex` change
anything.

What is printed is what `shards.survey` finds; here it is put into lines, or into JSON with --json. The JSON forms are
interfaces: fields are added, never renamed.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from actors.clocks import read_clocks
from cli.stores import ConfigFile, DataDir, Open, Sets, Stores, find_stores, open_stores, refuse
from cli.typed import moment_ms
from config.values import Duration
from mqtt.reason import ProtocolError
from mqtt.topics import check_topic_filter
from shards.clock import AgeClock
from shards.engine import StoreFailed
from shards.generations import DEFAULT_CLASS, GenerationInfo
from shards.messages import QOS_MASK, RETAIN, header
from shards.steady import WallRow
from shards.survey import Message

if TYPE_CHECKING:
    from shards.engine_rocks import RocksEngine

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Look into the stores of a broker, running or stopped.")

Json = Annotated[bool, typer.Option("--json", help="JSON for scripts.")]
Filter = Annotated[str, typer.Argument(metavar="FILTER", help="A topic filter, such as 'plant/+/temp' or '#'.")]
COUNT_MAX = 1_000_000
"""Messages of one generation that are counted; what is more is said to be more."""


# ---------------------------------------------------------------------------------------------------- what there is


@app.command()
def info(data_dir: DataDir = None, config: ConfigFile = None, set_: Sets = None, as_json: Json = False) -> None:
    """Shards, their generations and rows."""
    with open_stores(find_stores(data_dir, config, set_)) as stores:
        facts = [_shard_facts(store) for store in stores]
    if as_json:
        print(json.dumps(facts))
        return
    for shard in facts:
        print(f"shard {shard['shard']}: {shard['path']}, {_size(shard['bytes'])}, position {shard['position']}")
        if shard["age_suspended"]:
            print("  the clock jumped over a restart: nothing expires and nothing is dropped until `holdfast storage accept-clock`")
        if shard["clock_steps"]:
            apart_s = shard["clock_offset_ms"] / 1000
            print(f"  the wall clock was set {shard['clock_steps']} times; it is {apart_s:+.0f} s from the time that passed")
        classes = [row["class"] for row in shard["generations"]]
        # A column only where there is something to tell apart.
        width = max(map(len, classes)) + 2 if set(classes) != {DEFAULT_CLASS} else 0
        for row in shard["generations"]:
            state = "current" if row["until"] is None else f"sealed, until {row['until']}"
            print(
                f"  generation {row['generation']:>4}  {row['class'] if width else '':<{width}}{row['layout']:<19} "
                f"{_size(row['bytes']):>10}  {row['streams']:>6} streams  since {row['since']}, {state}, made {row['created']}"
            )
        for generation in shard["lost"]:
            print(f"  generation {generation:>4}  LOST: its row is there, its messages are not")
        print("  rows: " + ", ".join(f"{count} {name}" for name, count in sorted(shard["rows"].items())))


def _shard_facts(store: Open) -> dict[str, Any]:
    survey, age = store.survey, store.survey.age
    return {
        "shard": store.shard,
        "path": str(store.path),
        "bytes": store.engine.size_bytes(),
        "position": survey.position,
        "age_ms": age.age_ms if age else 0,
        "age_suspended": bool(age and age.suspended),
        "clock_steps": len(survey.wall.steps),
        "clock_offset_ms": survey.wall.offset_ms,
        "generations": [_generation_facts(store, info) for info in survey.generations],
        "lost": list(survey.lost),
        "rows": survey.rows(),
    }


def _generation_facts(store: Open, info: GenerationInfo) -> dict[str, Any]:
    return {
        "generation": info.id,
        "class": info.klass,
        "layout": info.layout,
        "since": info.since,
        "until": info.until,
        "created": when(store.survey.wall.wall_ms(info.since, info.created_wall_ms)),
        "sealed_age_ms": info.sealed_age_ms,
        "bytes": store.engine.family_bytes(info.id),
        "keys_estimated": store.engine.keys_estimated(info.id),
        "streams": len(store.survey.leaves(info.id)),
    }


@app.command()
def ls(
    topic_filter: Annotated[str, typer.Argument(metavar="[FILTER]", help="Only streams that can hold what matches.")] = "#",
    data_dir: DataDir = None, config: ConfigFile = None, set_: Sets = None, as_json: Json = False,
) -> None:  # fmt: skip
    """The streams: which topics are stored together, by the learned structure."""
    wanted = _filter(topic_filter)
    rows: list[dict[str, Any]] = []
    with open_stores(find_stores(data_dir, config, set_)) as stores:
        for store in stores:
            for generation, stream in store.survey.streams(wanted):
                pattern = store.survey.pattern(generation, stream.static)
                rows.append({"shard": store.shard, "generation": generation, "stream": stream.static.hex(), "topics": pattern.decode()})
    if as_json:
        print(json.dumps(rows))
        return
    for row in rows:
        print(f"{row['shard']:>3} {row['generation']:>5} {row['stream']} {row['topics']}")


@app.command()
def du(data_dir: DataDir = None, config: ConfigFile = None, set_: Sets = None, as_json: Json = False) -> None:
    """Bytes by shard and generation; the rest is rows of sessions, the log and what is not compacted yet."""
    with open_stores(find_stores(data_dir, config, set_)) as stores:
        facts = [_shard_facts(store) for store in stores]
    rows = [{key: shard[key] for key in ("shard", "path", "bytes", "generations")} for shard in facts]
    if as_json:
        names = ("generation", "class", "bytes")
        print(json.dumps([{**row, "generations": [_only(one, *names) for one in row["generations"]]} for row in rows]))
        return
    for row in rows:
        print(f"{_size(row['bytes']):>12} {row['path']}")
        for one in row["generations"]:
            print(f"{_size(one['bytes']):>12}   generation {one['generation']}{_in_class(one['class'])}")


# ---------------------------------------------------------------------------------------------------- messages


@app.command()
def explain(topic_filter: Filter, data_dir: DataDir = None, config: ConfigFile = None, set_: Sets = None, as_json: Json = False) -> None:
    """What a subscription to FILTER reads, what it costs, and when it expires."""
    wanted = _filter(topic_filter)
    found = find_stores(data_dir, config, set_)
    rows: list[dict[str, Any]] = []
    with open_stores(found) as stores:
        for store in stores:
            for info in store.survey.generations:
                rows.append(_explained(store, info, wanted, found.retention_ms))
    if as_json:
        print(json.dumps(rows))
        return
    for row in rows:
        more = " or more" if row["counted_to_limit"] else ""
        print(
            f"shard {row['shard']}, generation {row['generation']}{_in_class(row['class'])} ({row['layout']}): "
            f"{row['messages']}{more} messages, {_size(row['bytes'])}; expires {row['expires']}"
        )
        for stream in row["streams"]:
            lists = stream["index_lists"]
            how = f"{lists} index list{'s' * (lists > 1)}, then one look-up for each message" if lists else "one range, read in order"
            print(f"    {stream['topics']}: {how}")


def _explained(store: Open, info: GenerationInfo, wanted: bytes, retention_ms: int) -> dict[str, Any]:
    survey = store.survey
    messages, size = survey.count(info.id, wanted, -1, COUNT_MAX)
    streams = [
        {"topics": survey.pattern(info.id, stream.static).decode(), "stream": stream.static.hex(), "index_lists": len(stream.constraints)}
        for generation, stream in survey.streams(wanted)
        if generation == info.id
    ]
    return {
        "shard": store.shard, "generation": info.id, "class": info.klass, "layout": info.layout, "messages": messages,
        "counted_to_limit": messages >= COUNT_MAX, "bytes": size, "expires": _expires(store, info, retention_ms), "streams": streams,
    }  # fmt: skip


@app.command()
def dump(
    topic_filter: Filter,
    since: Annotated[str | None, typer.Option("--since", metavar="TIME", help="'2h' ago, or an ISO date and time (UTC).")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Messages of one shard at most.")] = 1000,
    data_dir: DataDir = None, config: ConfigFile = None, set_: Sets = None, as_json: Json = False,
) -> None:  # fmt: skip
    """Stored messages that match FILTER, one line each; within a stream in order."""
    wanted = _filter(topic_filter)
    since_ms = moment_ms(since) if since is not None else None
    with open_stores(find_stores(data_dir, config, set_)) as stores:
        for store in stores:
            after = store.survey.position_at(since_ms) - 1 if since_ms is not None else -1
            wall = store.survey.wall
            for message in store.survey.messages(wanted, after, limit):
                row = _message_facts(store.shard, message, wall)
                if since_ms is None or row["published_at_ms"] >= since_ms:
                    print(json.dumps(row) if as_json else _message_line(row))


def _message_facts(shard: int, message: Message, wall: WallRow) -> dict[str, Any]:
    flags, steady_ms, publisher, topic, body = header(message.value)
    published_at_ms = wall.wall_ms(message.position, steady_ms)
    return {
        "shard": shard, "generation": message.generation, "position": message.position, "published_at_ms": published_at_ms,
        "published_at": when(published_at_ms), "publisher": publisher.decode(), "topic": topic.decode(), "qos": flags & QOS_MASK,
        "retain": bool(flags & RETAIN), "body": base64.b64encode(body).decode(),
    }  # fmt: skip


def _message_line(row: dict[str, Any]) -> str:
    body = base64.b64decode(row["body"])
    return f"{row['published_at']} {row['publisher']} {row['topic']} qos {row['qos']}{' retain' if row['retain'] else ''} {body!r}"


# ---------------------------------------------------------------------------------------------------- care


@app.command()
def verify(data_dir: DataDir = None, config: ConfigFile = None, set_: Sets = None, as_json: Json = False) -> None:
    """Read everything that is stored; exit 1 and a sentence for each thing that is not as it must be."""
    faults: list[dict[str, Any]] = []
    with open_stores(find_stores(data_dir, config, set_)) as stores:
        for store in stores:
            for fault in store.survey.faults():
                faults.append({"shard": store.shard, "fault": fault})
                if not as_json:
                    print(f"shard {store.shard}: {fault}")
        n_shards = len(stores)
    if as_json:
        print(json.dumps({"shards": n_shards, "faults": faults}))
    elif not faults:
        print(f"{n_shards} shard{'s' * (n_shards > 1)} read, nothing is wrong")
    raise typer.Exit(1 if faults else 0)


@app.command()
def retention(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be dropped; nothing else is done by this command.")] = False,
    data_dir: DataDir = None, config: ConfigFile = None, set_: Sets = None, as_json: Json = False,
) -> None:  # fmt: skip
    """When each generation expires, and which sessions have not read all of it."""
    if not dry_run:
        refuse("the broker drops what has expired by itself; to see what and when, add --dry-run.", 2)
    found = find_stores(data_dir, config, set_)
    with open_stores(found) as stores:
        unread = [one for store in stores for one in store.survey.unread()]
        rows: list[dict[str, Any]] = []
        for store in stores:
            for info in store.survey.generations:
                behind = [one for one in unread if one.shard == store.shard and (info.until is None or one.place < info.until - 1)]
                losses = [_loss(store, info, one.client, one.filter, one.place) for one in behind if info.until is not None]
                rows.append(
                    {"shard": store.shard, "generation": info.id, "class": info.klass, "expires": _expires(store, info, found.retention_ms),
                     "bytes": store.engine.family_bytes(info.id), "unread": [loss for loss in losses if loss["messages"]]}
                )  # fmt: skip
    if as_json:
        print(json.dumps(rows))
        return
    for row in rows:
        where = f"shard {row['shard']}, generation {row['generation']}{_in_class(row['class'])}"
        print(f"{where}: {_size(row['bytes'])}, expires {row['expires']}")
        for loss in row["unread"]:
            print(f"    {loss['client']} would lose {loss['messages']} messages of {loss['filter']}")


def _loss(store: Open, info: GenerationInfo, client: bytes, topic_filter: bytes, place: int) -> dict[str, Any]:
    messages, size = store.survey.count(info.id, topic_filter, place, COUNT_MAX)
    return {"client": client.decode(), "filter": topic_filter.decode(), "messages": messages, "bytes": size}


@app.command()
def compact(data_dir: DataDir = None, config: ConfigFile = None, set_: Sets = None) -> None:
    """Give back the space of rows that were erased. The broker has to be stopped."""
    for shard, engine in _owned(find_stores(data_dir, config, set_), "compacted"):
        before = engine.size_bytes()
        for family in engine.families():
            engine.compact(family)
        print(f"shard {shard}: {_size(before)} before, {_size(engine.size_bytes())} now")


@app.command()
def reindex(data_dir: DataDir = None, config: ConfigFile = None, set_: Sets = None) -> None:
    """Make anew each index that does not say what its messages say. The broker has to be stopped."""
    from shards.mending import mend

    found, left, n_shards = 0, 0, 0
    for shard, engine in _owned(find_stores(data_dir, config, set_), "mended"):
        n_shards += 1
        try:
            for generation, faults, remaining in mend(shard, engine):
                where = f"shard {shard}: generation {generation}"
                print("\n".join([f"{where}, {fault}: made anew" for fault in faults]))
                print("\n".join([f"{where}, {fault}: STILL SO" for fault in remaining]), end="\n" if remaining else "")
                found, left = found + len(faults), left + len(remaining)
        except (StoreFailed, ValueError) as error:
            refuse(f"an index of shard {shard} cannot be made anew: {error}. `holdfast storage verify` says what else is wrong.")
    if not found:
        print(f"{n_shards} shard{'s' * (n_shards > 1)} read, every index says what its messages say")
    raise typer.Exit(1 if left else 0)


def _owned(stores: Stores, what: str) -> Iterator[tuple[int, RocksEngine]]:
    """Each store, open for this command alone."""
    from shards.engine_rocks import RocksEngine  # only who looks into a store pays for loading RocksDB

    for shard, path in enumerate(stores.paths):
        if not (path / "CURRENT").exists():
            refuse(f"the store of shard {shard} is not at {path}.")
        try:
            engine = RocksEngine(str(path))
        except StoreFailed as error:
            refuse(f"the store of shard {shard} cannot be {what}: {error}.")
        with closing(engine):
            yield shard, engine


# ---------------------------------------------------------------------------------------------------- words


def _expires(store: Open, info: GenerationInfo, retention_ms: int) -> str:
    """When it goes by the period of its class, as it stands now; for the default class as the configuration says."""
    if info.sealed_age_ms is None:
        return "not before it is sealed"
    now = read_clocks()
    clock = AgeClock(store.survey.age, now)
    if clock.suspended:
        return "not before the clock is accepted"
    left_ms = max(0, info.sealed_age_ms + store.survey.period_ms(info, retention_ms) - clock.age_ms(now))
    return "now" if not left_ms else f"in {Duration(left_ms - left_ms % 1000 or left_ms)}"


def _in_class(klass: str) -> str:
    """Said only where there is something to say."""
    return "" if klass == DEFAULT_CLASS else f" of class {klass}"


def _filter(text: str) -> bytes:
    try:
        return check_topic_filter(text)
    except ProtocolError as error:
        refuse(f"{text!r} is no topic filter: {error}.", 2)


def when(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _size(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def _only(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: row[name] for name in names}
