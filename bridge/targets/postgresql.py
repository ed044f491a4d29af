"""PostgreSQL as target, by asyncpg: a row for each message, and how far this lane is, in one transaction.

Exactly once by the key of the table (store, shard, position): what comes again is no second row, after a rewind as well.  The number of the
last message is a row of `progress_table`, changed in the transaction that has the messages, and only by who knows the number that was
there: another process of the same bridge that still runs somewhere writes nothing before it was opened again.

A row that the database refuses for good is found by halving the batch, each part behind a savepoint.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import asyncpg
import jmespath
from jmespath.exceptions import JMESPathError

from bridge.port import Accepted, Batch, Context, Message, Misconfigured, Outcome, Unavailable
from bridge.targets.documents import document_of, published_at
from bridge.targets.flight import Flight
from config.bridge_kinds import IDENTITY, Postgresql

CLOSE_S: Final = 3.0
REASON_CHARACTERS_MAX: Final = 300
COLUMNS: Final = (
    ("store", "text"),
    ("shard", "integer"),
    ("position", "bigint"),
    ("topic", "text"),
    ("payload", "bytea"),
    ("qos", "smallint"),
    ("retain", "boolean"),
    ("published_at", "timestamptz"),
    ("publisher", "text"),
    ("content_type", "text"),
    ("user_properties", "jsonb"),
)
"""Of the table that is made, and their types; the first three are its key."""
FOR_GOOD: Final = ("22", "23")
"""Classes of errors about what a row holds: data exceptions, and constraints."""
NOT_NOW: Final = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)
"""What calls of the database raise.  The third is of asyncpg itself: of a connection that broke between two messages of one call."""
SOMEBODY: Final = ("28", "3D", "3F", "42")
"""About who we are and what is there: authorization, database, schema, and what statements name."""

_PROGRESS = """\
CREATE TABLE IF NOT EXISTS {table} (
    store text NOT NULL, bridge text NOT NULL, lanes integer NOT NULL, lane integer NOT NULL,
    epoch text NOT NULL, number numeric(20) NOT NULL, changed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (store, bridge, lanes, lane))"""
_READ = "SELECT epoch, number::text FROM {table} WHERE store = $1 AND bridge = $2 AND lanes = $3 AND lane = $4"
_BEGIN = """\
INSERT INTO {table} (store, bridge, lanes, lane, epoch, number) VALUES ($1, $2, $3, $4, '', 0)
ON CONFLICT (store, bridge, lanes, lane) DO NOTHING"""
_MOVE = """\
UPDATE {table} SET epoch = $5, number = $6::text::numeric, changed_at = now()
WHERE store = $1 AND bridge = $2 AND lanes = $3 AND lane = $4 AND epoch = $7 AND number = $8::text::numeric"""


class PostgresqlTarget:
    """made -> opened -> (delivers) -> closed: one connection, one transaction at a time."""

    exactly_once: ClassVar[bool] = True

    def __init__(self, settings: Postgresql, context: Context) -> None:
        self._settings = settings
        self._context = context
        self._connection: Any = None
        self._at = Accepted("", 0)
        """What the row of this lane has."""
        try:
            self._columns = {name: jmespath.compile(text) for name, text in settings.expressions.items()}
        except JMESPathError as error:
            raise Misconfigured(f"columns has something that is no JMESPath: {_one_line(error)}") from None

    async def open(self) -> Accepted | None:
        settings = self._settings
        try:
            password = self._context.secret(settings.password).decode() if settings.password else None
        except (KeyError, ValueError):
            raise Misconfigured(f"the password of the database's user is not at {settings.password}, or is not text") from None
        try:
            # asyncpg reads certificates that the address names on the loop: a few small files, once for each connection.
            self._connection = connection = await asyncpg.connect(
                settings.url, password=password, server_settings={"application_name": f"holdfast {self._context.bridge}"}
            )
            # Two lanes that make the same table at once would else meet in the catalogue.
            async with connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock(hashtext('holdfast bridge'))")
                await connection.execute(_PROGRESS.format(table=_quoted(settings.progress_table)))
                if not self._columns:
                    await connection.execute(_table(settings.table))
                await connection.execute(_BEGIN.format(table=_quoted(settings.progress_table)), *self._lane())
            row = await connection.fetchrow(_READ.format(table=_quoted(settings.progress_table)), *self._lane())
        except (*NOT_NOW, ValueError) as error:
            raise self._said(error) from None
        if row is None:
            raise Unavailable(f"the row of this bridge in {settings.progress_table} was taken away")
        self._at = Accepted(row[0], int(row[1]))
        return None

    async def deliver(self, batch: Batch) -> Outcome:
        connection = self._connection
        if connection is None or connection.is_closed():
            raise Unavailable("the connection to the database is closed")
        flight = Flight(len(batch.messages))
        # What comes again is put in again, and its key makes it nothing; so what was refused is refused again, if nobody has heard of it.
        numbered = list(enumerate(batch.messages))
        moved = Accepted(batch.epoch, batch.messages[-1].number)
        if moved.epoch == self._at.epoch:
            moved = max(moved, self._at)
        try:
            async with connection.transaction():
                told = await connection.execute(
                    _MOVE.format(table=_quoted(self._settings.progress_table)),
                    *self._lane(), moved.epoch, str(moved.number), self._at.epoch, str(self._at.number),
                )  # fmt: skip
                if told != "UPDATE 1":
                    raise Unavailable("another process of this bridge has written to the database, so what it has is asked again")
                await self._insert(connection, flight, numbered)
        except NOT_NOW as error:
            raise self._said(error) from None
        self._at = moved
        return flight.outcome()

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        with contextlib.suppress(*NOT_NOW):
            async with asyncio.timeout(CLOSE_S):
                await connection.close()
        connection.terminate()

    # ---------------------------------------------------------------- rows
    async def _insert(self, connection: Any, flight: Flight, numbered: Sequence[tuple[int, Message]]) -> None:
        try:
            async with connection.transaction():
                await self._insert_all(connection, [message for _, message in numbered])
        except asyncpg.PostgresError as error:
            if not str(error.sqlstate).startswith(FOR_GOOD):
                raise
            if len(numbered) == 1:
                flight.settle(numbered[0][0], f"the database refused it: {_one_line(error)}")
                return
            half = len(numbered) // 2
            await self._insert(connection, flight, numbered[:half])
            await self._insert(connection, flight, numbered[half:])
        except _Unfit as error:
            if len(numbered) == 1:
                flight.settle(numbered[0][0], str(error))
                return
            half = len(numbered) // 2
            await self._insert(connection, flight, numbered[:half])
            await self._insert(connection, flight, numbered[half:])
        else:
            for index, _ in numbered:
                flight.settle(index)

    async def _insert_all(self, connection: Any, messages: Sequence[Message]) -> None:
        table = _quoted(self._settings.table)
        if self._columns:
            names = ", ".join(_quoted(name) for name in (*IDENTITY, *self._columns))
            statement = f"INSERT INTO {table} ({names}) SELECT {names} FROM json_populate_recordset(NULL::{table}, $1::json)"
            rows = [self._row(message) for message in messages]
            await connection.execute(f"{statement} ON CONFLICT (store, shard, position) DO NOTHING", json.dumps(rows))
            return
        names = ", ".join(name for name, _ in COLUMNS)
        arrays = ", ".join(f"${number}::{kind}[]" for number, (_, kind) in enumerate(COLUMNS, 1))
        statement = f"INSERT INTO {table} ({names}) SELECT * FROM unnest({arrays}) ON CONFLICT (store, shard, position) DO NOTHING"
        store = self._context.store
        rows_by_column = zip(
            *[
                (
                    store, message.shard, message.position, message.topic, message.payload, message.qos, message.retain,
                    published_at(message), message.publisher, message.content_type, json.dumps(message.user_properties),
                )
                for message in messages
            ],
            strict=True,
        )  # fmt: skip
        await connection.execute(statement, *[list(column) for column in rows_by_column])

    def _row(self, message: Message) -> dict[str, object]:
        document = document_of(self._context.store, message)
        row: dict[str, object] = {name: document[name] for name in IDENTITY}
        for name, expression in self._columns.items():
            try:
                row[name] = expression.search(document)
            except (JMESPathError, TypeError, ValueError, RecursionError) as error:
                raise _Unfit(f"column {name} cannot be evaluated: {_one_line(error)}") from None
        return row

    # ---------------------------------------------------------------- words
    def _lane(self) -> tuple[str, str, int, int]:
        return self._context.store, self._context.bridge, self._context.lanes, self._context.lane

    def _said(self, error: Exception) -> Unavailable | Misconfigured:
        """What an error of the connection or of the whole transaction is to a bridge."""
        state = str(getattr(error, "sqlstate", "") or "")
        words = f"the database answered: {_one_line(error)}" if state else f"the database cannot be reached: {_one_line(error)}"
        if state.startswith(SOMEBODY) or isinstance(error, ValueError | asyncpg.exceptions.ClientConfigurationError):
            return Misconfigured(words)
        return Unavailable(words)


class _Unfit(Exception):
    """A message of which a column cannot be had."""


def _table(name: str) -> str:
    columns = ", ".join(f"{column} {kind} NOT NULL" for column, kind in COLUMNS)
    return f"CREATE TABLE IF NOT EXISTS {_quoted(name)} ({columns}, PRIMARY KEY (store, shard, position))"


def _quoted(name: str) -> str:
    """config.bridge_kinds lets letters, digits, underscores, and one dot pass.  Quoted, letters keep their case."""
    return ".".join(f'"{part}"' for part in name.split("."))


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:REASON_CHARACTERS_MAX] or type(error).__name__
