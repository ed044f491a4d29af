"""One broker for all tests of a module: the real servers on one event loop, two shards among them, with real sockets and RocksDB."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from tests.actors.one_loop import OneLoop
from tests.conformance.packets import PASSWORD, USER
from tests.conformance.peer import hang_up


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[OneLoop]:
    async with OneLoop(tmp_path_factory.mktemp("broker"), n_shards=2, users={USER: PASSWORD}) as running:
        yield running


@pytest.fixture
def port(broker: OneLoop) -> int:
    return broker.port


@pytest.fixture(autouse=True)
def _no_peer_outlives_its_test() -> Iterator[None]:
    yield
    hang_up()
