"""Who owns a link that was dialled to the site process, by the role of who dialled it."""

from __future__ import annotations

from collections.abc import Mapping

from actors.links import Link, LinkOwner


class Door:
    """The owner of the site's LinkServer."""

    def __init__(self, owners: Mapping[str, LinkOwner]) -> None:
        self._owners = owners
        self._of: dict[int, LinkOwner] = {}

    def link_up(self, link: Link) -> None:
        owner = self._owners.get(link.peer_role)
        if owner is None:
            link.close(f"a site process serves {', '.join(self._owners)}, and this is {link.peer_role!r}")
            return
        self._of[link.number] = owner
        owner.link_up(link)

    def link_frame(self, link: Link, data: bytes) -> None:
        self._of[link.number].link_frame(link, data)

    def link_down(self, link: Link) -> None:
        owner = self._of.pop(link.number, None)
        if owner is not None:
            owner.link_down(link)
