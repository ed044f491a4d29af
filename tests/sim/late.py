"""Worlds over tests.sim.late_engine: one without a fault, and a fault that shows there only, as it reads what is not committed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shards.core import ShardCore
from tests.sim.broker import Plant
from tests.sim.planting import Planted


class Late(Plant):
    """Nothing is wrong in it."""

    late = True


class RowsForgottenEarly(Planted):
    """Harmless where the engine has a record at once."""

    name = "rows are kept over the engine until their record is submitted"
    late = True

    def shard(self, core: ShardCore) -> None:
        draft: Any = core._draft

        def make(submit: Any) -> Callable[..., None]:
            def forgetful(*args: Any) -> None:
                submit(*args)
                draft.committed(core._submitted_upto)

            return forgetful

        self.replace(core, "_submit", make)


ALL: list[type[Planted]] = [RowsForgottenEarly]
