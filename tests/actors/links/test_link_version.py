"""Two ends speak the newest version that both know, and say why when there is none."""

from __future__ import annotations

import pytest

from actors.link import FramedLink
from actors.link_version import OWN, NoCommonVersion, Spoken, agree
from actors.links import LinkClient
from actors.wire import Wire
from tests.actors.links.ends import Ends, passed
from tests.actors.links.test_links import SECRET


@pytest.mark.parametrize(
    ("ours", "theirs", "version"), [((1, 1), (1, 1), 1), ((1, 2), (1, 1), 1), ((2, 3), (1, 2), 2), ((1, 3), (2, 3), 3)]
)
def test_both_ends_come_to_the_same_version(ours: tuple[int, int], theirs: tuple[int, int], version: int) -> None:
    """The newest of the older one."""
    assert agree(Spoken(*ours), Spoken(*theirs)) == agree(Spoken(*theirs), Spoken(*ours)) == version


def test_releases_too_far_apart_say_which_is_too_old() -> None:
    """From either end, with both versions."""
    with pytest.raises(NoCommonVersion, match=r"speaks version 1 of links and this end versions 2 to 3: it is too old"):
        agree(Spoken(2, 3), Spoken(1, 1))
    with pytest.raises(NoCommonVersion, match=r"speaks versions 2 to 3 of links and this end version 1: this end is too old"):
        agree(Spoken(1, 1), Spoken(2, 3))


async def test_a_newer_end_is_linked_with_and_speaks_as_the_older_one_does() -> None:
    """Either may be the newer one."""
    newer = Wire(SECRET, speaks=Spoken(OWN.oldest, OWN.newest + 1))
    for server, client in ((newer, Wire(SECRET)), (Wire(SECRET), newer)):
        async with Ends(server, client) as ends:
            await ends.theirs.until(1)
            await ends.ours.until(1)
            assert ends.theirs.links[0].version == ends.ours.links[0].version == OWN.newest


async def test_ends_without_a_common_version_are_not_linked() -> None:
    """And the one that dials knows why; it goes on trying, since the other may be upgraded."""
    far = Wire(SECRET, speaks=Spoken(OWN.newest + 1, OWN.newest + 2))
    async with Ends(far, Wire(SECRET)) as ends:
        client: LinkClient = ends.client
        await passed(lambda: "of links and this end" in client.refused)
        assert ends.ours.heard == ends.theirs.heard == []


async def test_what_an_end_says_of_its_version_is_proved() -> None:
    """Who changes it on the way changes nothing: the proof is over it."""
    async with Ends(Wire(SECRET), Wire(SECRET)) as ends:
        await ends.ours.until(1)
        (link,) = ends.ours.links
        assert isinstance(link, FramedLink)
        said = [link._proof(b"client", b"n", "gateway", "gateway-0:b", spoken) for spoken in (Spoken(1, 1), Spoken(1, 2))]
        assert said[0] != said[1]
