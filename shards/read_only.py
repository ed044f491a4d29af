"""A RocksDB store opened for reading only: whatever is asked of it, nothing in it changes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rocksdict import AccessType, Options, Rdict

from shards.engine import StoreFailed
from shards.engine_rocks import mapped
from shards.family_names import family_of
from shards.generations import ROW_PREFIX, ROWS_END, GenerationInfo


@contextmanager
def opened_read_only(path: str, options: Options) -> Iterator[tuple[Rdict, dict[int, Rdict]]]:
    """The database, and its families by number. Raises StoreFailed, also for whatever goes wrong while it is open."""
    try:
        names = Rdict.list_cf(path, options)
        db = Rdict(path, options, dict.fromkeys(names, options), AccessType.read_only(False))
    except Exception as error:
        raise mapped(f"open {path}", error) from error
    families = {family_of(path, name): db.get_column_family(name) for name in names}
    try:
        yield db, families
    except StoreFailed:
        raise
    except Exception as error:
        raise mapped(f"look into {path}", error) from error
    finally:
        families.clear()
        db.close()


def generation_rows(home: Rdict) -> list[GenerationInfo]:
    """What the family HOME_FAMILY says of all generations, in their order."""
    found: list[GenerationInfo] = []
    iterator = home.iter()
    iterator.seek(ROW_PREFIX)
    while iterator.valid() and iterator.key() < ROWS_END:
        found.append(GenerationInfo.decode(iterator.key(), iterator.value()))
        iterator.next()
    iterator.status()
    return found
