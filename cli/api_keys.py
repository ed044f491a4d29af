"""`holdfast api-keys`: who may ask the admin process over HTTP for what (docs/rest.md); made, listed and taken away, in the data directory.

A broker that runs there sees the change by itself, within a second.  A secret is said once, when its key is made: the file has only its
hash.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from access.api_keys import (
    FILE_BYTES_MAX,
    FILE_NAME,
    ID_BYTES,
    SECRET_BYTES,
    ApiKey,
    KeyFileError,
    Scope,
    bearer,
    check_name,
    read_keys,
    written,
)
from access.passwords import argon2id_entry
from cli.asked import DataDir, Json, print_json, table, when
from cli.changed_files import alone, replace
from cli.paths import data_path
from cli.stores import refuse
from cli.typed import duration_or_none

SALT_BYTES = 16

app = typer.Typer(no_args_is_help=True, add_completion=False, help="API keys, for asking the broker over HTTP.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="What people call the key.")]


@app.command()
def add(
    name: Name,
    scope: Annotated[Scope, typer.Option("--scope", help="read, or write: everything, reading included.")] = "read",
    expires: Annotated[str, typer.Option("--expires", metavar="DURATION", help="After so long it is not taken any more.")] = "infinity",
    data_dir: DataDir = "./data", as_json: Json = False,
) -> None:  # fmt: skip
    """Make a key, and say its secret, once."""
    try:
        check_name(name)
    except ValueError as error:
        refuse(f"{error}.", 2)
    path, now_ms = _path(data_dir), time.time_ns() // 1_000_000
    left_ms = duration_or_none(expires)
    id, secret = secrets.token_urlsafe(ID_BYTES), secrets.token_urlsafe(SECRET_BYTES)
    with alone(path), _as_sentence(path):
        keys = _read(path)
        if any(key.name == name for key in keys):
            refuse(f"there is a key {name} already; `holdfast api-keys rm {name}` takes it away.")
        hashed = argon2id_entry(secret.encode(), secrets.token_bytes(SALT_BYTES))
        key = ApiKey(
            name=name, id=id, scope=scope, hash=hashed, created_at_ms=now_ms, expires_at_ms=None if left_ms is None else now_ms + left_ms
        )
        replace(path, written([*keys, key]))
    if as_json:
        print_json({**_facts(key), "secret": secret, "bearer": bearer(id, secret)})
        return
    print(f"key     {id}\nsecret  {secret}\nbearer  {bearer(id, secret)}")
    print("The secret is not shown again. Ask as `curl -u KEY:SECRET ...`, or with the header `Authorization: Bearer` and the last line.")


@app.command()
def ls(data_dir: DataDir = "./data", as_json: Json = False) -> None:
    """All keys, without their secrets, which nobody has any more."""
    path = _path(data_dir)
    with _as_sentence(path):
        keys = _read(path)
    now_ms = time.time_ns() // 1_000_000
    if as_json:
        print_json([_facts(key) | {"expired": key.expired(now_ms)} for key in keys])
    elif keys:
        table(("NAME", "SCOPE", "KEY", "CREATED", "EXPIRES"), [_cells(key, now_ms) for key in keys])
    else:
        print("there are no API keys")


@app.command()
def rm(name: Name, data_dir: DataDir = "./data", as_json: Json = False) -> None:
    """Take a key away: it is refused from then on."""
    path = _path(data_dir)
    with alone(path), _as_sentence(path):
        keys = _read(path)
        left = [key for key in keys if key.name != name]
        if len(left) == len(keys):
            refuse(f"there is no API key {name}.")
        replace(path, written(left))
    if as_json:
        print_json({"name": name, "removed": True})
    else:
        print(f"{name} is taken away")


def _facts(key: ApiKey) -> dict[str, str | None]:
    expires = None if key.expires_at_ms is None else when(key.expires_at_ms)
    return {"name": key.name, "key": key.id, "scope": key.scope, "created_at": when(key.created_at_ms), "expires_at": expires}


def _cells(key: ApiKey, now_ms: int) -> tuple[str, ...]:
    expires = "-" if key.expires_at_ms is None else when(key.expires_at_ms) + (" (over)" if key.expired(now_ms) else "")
    return key.name, key.scope, key.id, when(key.created_at_ms), expires


def _path(data_dir: str) -> Path:
    directory = data_path(data_dir)
    if not directory.is_dir():
        refuse(f"{directory} is not the data directory of a broker: name it with --data-dir.")
    return directory / FILE_NAME


def _read(path: Path) -> list[ApiKey]:
    try:
        with path.open("rb") as file:
            return read_keys(file.read(FILE_BYTES_MAX + 1))
    except FileNotFoundError:
        return []


@contextlib.contextmanager
def _as_sentence(path: Path) -> Iterator[None]:
    try:
        yield
    except KeyFileError as error:
        refuse(f"{path}: {error}; nothing was changed.")
