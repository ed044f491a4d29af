"""Faults of rows that are stored together (shards.bundles); planted as those of tests.sim.planted are."""

from __future__ import annotations

from typing import Any

from shards.core import ShardCore
from shards.engine import HOME_FAMILY
from tests.sim.planting import Planted


class RowOfBundleLost(Planted):
    name = "a row is not written when its bundle goes"

    def shard(self, core: ShardCore) -> None:
        def make(fold: Any) -> Any:
            def short() -> Any:
                single, free, ops = fold()
                return single[1:], free, ops

            return short

        self.replace(core._draft._bundles, "fold", make)


class BundleNotRead(Planted):
    name = "a store is opened without the last row of a bundle"

    def shard(self, core: ShardCore) -> None:
        draft: Any = core._draft
        for bundle in draft._bundles._made:
            key = bundle.keys[-1]
            if draft._bundles.newest[key] == bundle.number:
                self.planted += 1
                draft._overlay[key] = (draft._engine.get(HOME_FAMILY, key), draft._overlay[key][1])


OF_BUNDLES: list[type[Planted]] = [RowOfBundleLost, BundleNotRead]
