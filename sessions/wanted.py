"""Which filters the subscriptions that read want, and which of them a topic is for: of all shards alike, as each of them reads all."""

from __future__ import annotations

from collections.abc import Iterator

from mqtt.trie import FilterTrie
from sessions.session import Subscription


class Wanted:
    def __init__(self) -> None:
        self._trie: FilterTrie[Subscription] = FilterTrie()
        self._counts: dict[bytes, int] = {}
        self.match = self._trie.match

    def add(self, sub: Subscription) -> bool:
        """Whether it is the first with its filter."""
        filter = sub.terms.filter
        self._trie.add(filter, sub)
        self._counts[filter] = count = self._counts.get(filter, 0) + 1
        return count == 1

    def remove(self, sub: Subscription) -> bool:
        """Whether it was the last with its filter."""
        filter = sub.terms.filter
        self._trie.remove(filter, sub)
        count = self._counts[filter] - 1
        if count:
            self._counts[filter] = count
        else:
            del self._counts[filter]
        return not count

    def filters(self) -> dict[bytes, None]:
        return dict.fromkeys(self._counts)

    def subs(self) -> Iterator[Subscription]:
        """Do not change what is wanted meanwhile."""
        return (sub for _, sub in self._trie.pairs())

    def check(self) -> None:
        assert sum(self._counts.values()) == len(self._trie)
        assert all(filter in self._counts and not sub.ended for filter, sub in self._trie.pairs())
