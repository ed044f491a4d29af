"""What owners rely on holds of both forms of a link: a socket between processes, and the direct one within a process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from actors import link as links
from actors.direct import FRAMES_MAX, DirectLink
from actors.directory import Directory
from actors.endpoints import Endpoint
from actors.link import CUT_OFF, WRITE_BYTES_MAX, Carried, FramedLink, Link, taken
from actors.links import LinkClient, LinkServer
from actors.wire import Wire
from tests.actors.links.ends import passed
from tests.actors.links.test_links import Doorkeeper, Owner

SECRET = b"s" * 32
FORMS: dict[str, Callable[[], Wire]] = {"framed": lambda: Wire(SECRET), "direct": lambda: Wire(SECRET, directory=Directory())}
KINDS = {"framed": FramedLink, "direct": DirectLink}


class Answering(Owner):
    """Says back what it hears, within the call in which it hears it."""

    def link_frame(self, link: Link, data: bytes) -> None:
        super().link_frame(link, data)
        link.send(b"you said " + data)


class Greeting(Owner):
    """Speaks as soon as it may."""

    def link_up(self, link: Link) -> None:
        super().link_up(link)
        link.send(b"hello")


class Hanging(Owner):
    """Hangs up when it hears this frame, while others are behind it."""

    def link_frame(self, link: Link, data: bytes) -> None:
        super().link_frame(link, data)
        if data == b"enough":
            link.close("it has heard enough")


class Pair:
    """A server and a client of it, of one form."""

    def __init__(self, form: str, path: Path, theirs: Owner, ours: Owner) -> None:
        self.at = Endpoint(str(path / "l.sock"))
        self.wire = FORMS[form]()
        self.theirs, self.ours = theirs, ours
        self.server = LinkServer([self.at], theirs, self.wire, "shard", "shard-0:a")
        self.client = LinkClient(lambda: self.at, ours, self.wire, "gateway", "gateway-0:b")

    async def __aenter__(self) -> Pair:
        await self.server.start()
        self.client.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.stop()
        await self.server.stop()

    async def up(self) -> tuple[Link, Link]:
        """Their end and ours."""
        await self.theirs.until(1)
        await self.ours.until(1)
        return self.theirs.links[0], self.ours.links[0]


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_who_shares_a_process_is_linked_directly_and_nobody_else(form: str, tmp_path: Path) -> None:
    """Of a directory: who dials by another one finds the socket at the same path."""
    async with Pair(form, tmp_path, Owner(), Owner()) as pair:
        assert [type(each) for each in await pair.up()] == [KINDS[form]] * 2
        elsewhere = Owner()
        client = LinkClient(lambda: pair.at, elsewhere, FORMS[form](), "admin", "admin-0:c")
        client.start()
        await elsewhere.until(1)
        assert isinstance(elsewhere.links[0], FramedLink)
        await client.stop()


async def test_both_hear_who_the_other_is_then_all_frames_in_order_then_the_end(form: str, tmp_path: Path) -> None:
    """Up before the first frame, down after the last, once each, at both ends."""
    async with Pair(form, tmp_path, Owner(), Greeting()) as pair:
        theirs, ours = await pair.up()
        frames = [b"", b"x", b"y" * 300_000, *(b"%d" % n for n in range(500))]
        for frame in frames:
            pair.client.send(frame)
        theirs.send(b"back")
        assert await pair.theirs.until(2 + len(frames)) == ["up gateway gateway-0:b", b"hello", *frames]
        assert await pair.ours.until(2) == ["up shard shard-0:a", b"back"]
        assert (ours.up, ours.lost, ours.version, theirs.version) == (True, False, 1, 1)
    assert (await pair.theirs.until(3 + len(frames)))[-1] == "down" == (await pair.ours.until(3))[-1]
    assert len(pair.theirs.heard) == 3 + len(frames) and len(pair.ours.heard) == 3
    assert ours.lost and theirs.lost and not ours.up


async def test_nobody_is_called_while_he_sends_or_hangs_up(form: str, tmp_path: Path) -> None:
    """An owner is between two of its own lines then: what comes of it comes in a later turn of the loop."""
    async with Pair(form, tmp_path, Answering(), Owner()) as pair:
        theirs, ours = await pair.up()
        before = list(pair.ours.heard), list(pair.theirs.heard)
        ours.send(b"one")
        ours.send(b"two")
        assert (pair.ours.heard, pair.theirs.heard) == before
        assert (await pair.ours.until(3))[1:] == [b"you said one", b"you said two"]
        ours.close("enough")
        theirs.send(b"nobody hears this")
        assert "down" not in pair.ours.heard + pair.theirs.heard
        await pair.theirs.until(4)
        assert (await pair.ours.until(4))[3] == "down"


async def test_what_is_sent_while_frames_are_delivered_comes_behind_them(form: str, tmp_path: Path) -> None:
    """Answers of both ends to each other go on for ever, in their order, and others have their turns between them."""
    async with Pair(form, tmp_path, Answering(), Answering()) as pair:
        _, ours = await pair.up()
        ours.send(b"a")
        ours.send(b"b")
        heard = (await pair.theirs.until(9))[1:9]
        firsts = [str(each).rpartition(" ")[2] for each in heard]
        assert all(one != other for one, other in pairwise(firsts)), heard


async def test_who_hangs_up_hears_nothing_more_of_what_was_under_way(form: str, tmp_path: Path) -> None:
    """And the other end hears that it is over; each dials anew afterwards."""
    async with Pair(form, tmp_path, Hanging(), Owner()) as pair:
        _, ours = await pair.up()
        for frame in (b"some", b"enough", b"more"):
            ours.send(frame)
        assert (await pair.theirs.until(5))[:5] == ["up gateway gateway-0:b", b"some", b"enough", "down", "up gateway gateway-0:b"]
        assert (await pair.ours.until(3))[:3] == ["up shard shard-0:a", "down", "up shard shard-0:a"]
        assert len({each.number for each in pair.ours.links + pair.theirs.links}) == 4


async def test_a_link_that_is_gone_takes_what_is_sent_and_delivers_nothing(form: str, tmp_path: Path) -> None:
    """Its owner has been told, and sends numbered frames again on the next one."""
    async with Pair(form, tmp_path, Owner(), Owner()) as pair:
        theirs, ours = await pair.up()
        ours.close("for a test")
        ours.close("twice")
        await pair.ours.until(2)
        await pair.theirs.until(2)
        ours.send(b"too late")
        theirs.send(b"too late")
        await pair.theirs.until(3)
        assert pair.theirs.heard[:3] == ["up gateway gateway-0:b", "down", "up gateway gateway-0:b"]
        assert ours.unsent_bytes == 0 == theirs.unsent_bytes


async def test_a_client_finds_the_next_who_listens_there(form: str, tmp_path: Path) -> None:
    """A part that stops and starts is dialled until it answers, also in one process."""
    ours = Owner()
    at, wire = Endpoint(str(tmp_path / "l.sock")), FORMS[form]()
    client = LinkClient(lambda: at, ours, wire, "gateway", "gateway-0:b")
    client.start()
    for life in range(2):
        server = LinkServer([at], Owner(), wire, "shard", f"shard-0:{life}")
        await server.start()
        assert (await ours.until(1 + 2 * life))[-1] == f"up shard shard-0:{life}"
        await server.stop()
        await ours.until(2 + 2 * life)
    await client.stop()


async def test_who_lets_nobody_stay_is_asked_less_and_less_often(form: str, tmp_path: Path) -> None:
    """Each time both ends hear up and down."""
    async with Pair(form, tmp_path, Doorkeeper(), Owner()) as pair:
        assert isinstance(pair.theirs, Doorkeeper)
        await pair.theirs.until(6)
        first, second = (later - sooner for sooner, later in pairwise(pair.theirs.came_s[:3]))
        # A timer of the loop may be up to two milliseconds early.
        assert second >= 0.028 and first >= 0.018
        assert pair.theirs.heard[:4] == ["up gateway gateway-0:b", "down"] * 2


@pytest.mark.slow
async def test_who_does_not_read_is_cut_off_when_too_much_waits(form: str, tmp_path: Path) -> None:
    """What waits is bounded in bytes, and is counted until it is read."""
    async with Pair(form, tmp_path, Owner(), Owner()) as pair:
        theirs, ours = await pair.up()
        theirs.hold()
        frame = b"z" * (8 << 20)
        ours.send(frame)
        ours.send(frame)
        assert ours.unsent_bytes >= len(frame)
        for _ in range(WRITE_BYTES_MAX // len(frame) + 1):
            ours.send(frame)
        assert (await pair.ours.until(2))[1] == "down"


class Said(NamedTuple):
    words: list[str]


def written(said: Said) -> bytes:
    return " ".join(said.words).encode()


def read(data: bytes) -> Said:
    return Said(data.decode().split(" "))


class Reading(Owner):
    """Knows what frames of the other end mean."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[Said] = []

    def link_frame(self, link: Link, data: Carried) -> None:
        self.said.append(taken(data, read))
        self._note("said")


async def test_a_frame_that_is_handed_on_is_heard_in_its_turn(form: str, tmp_path: Path) -> None:
    """Of the direct form it is the very frame; over a socket one like it."""
    async with Pair(form, tmp_path, Reading(), Owner()) as pair:
        _, ours = await pair.up()
        one, two = Said(["one"]), Said(["two", "words"])
        pair.client.hand_on(one, written)
        ours.send(b"between")
        ours.hand_on(two, written)
        assert pair.theirs.heard == ["up gateway gateway-0:b"]
        await pair.theirs.until(4)
        assert isinstance(pair.theirs, Reading) and pair.theirs.said == [one, Said(["between"]), two]
        assert (pair.theirs.said[2] is two) == (form == "direct")
        ours.close("for a test")
        ours.hand_on(two, written)
        await pair.theirs.until(5)
        assert len(pair.theirs.said) == 3


async def test_who_takes_no_frames_in_one_process_is_cut_off_when_too_many_wait(tmp_path: Path) -> None:
    """Of the direct form, where their bytes are not known; up to the bound all are heard."""
    async with Pair("direct", tmp_path, Reading(), Owner()) as pair:
        theirs, ours = await pair.up()
        theirs.hold()
        said = Said(["again"])
        for _ in range(FRAMES_MAX):
            ours.hand_on(said, written)
        theirs.release()
        await pair.theirs.until(1 + FRAMES_MAX)
        theirs.hold()
        for _ in range(FRAMES_MAX + 1):
            ours.hand_on(said, written)
        assert (await pair.ours.until(2))[1] == "down"


async def test_what_is_held_is_heard_when_it_is_released(form: str, tmp_path: Path) -> None:
    """In its order; nothing meanwhile."""
    async with Pair(form, tmp_path, Owner(), Owner()) as pair:
        theirs, ours = await pair.up()
        theirs.hold()
        ours.send(b"1")
        theirs.send(b"while it holds")
        await pair.ours.until(2)
        ours.send(b"2")
        assert pair.theirs.heard == ["up gateway gateway-0:b"]
        theirs.release()
        assert (await pair.theirs.until(3))[1:] == [b"1", b"2"]


@pytest.fixture
def nobody_admitted() -> Iterator[None]:
    links.admits = lambda link: False
    yield
    links.admits = None


async def test_what_is_cut_off_on_purpose_is_never_up(form: str, tmp_path: Path, nobody_admitted: None) -> None:
    """Neither owner hears anything; it is dialled again, and linked when that is over."""
    async with Pair(form, tmp_path, Owner(), Owner()) as pair:
        await passed(lambda: pair.client.link is not None and pair.client.link.cause == CUT_OFF)
        assert pair.ours.heard == [] == pair.theirs.heard
        links.admits = None
        await pair.up()


async def test_what_was_sent_before_the_other_end_hung_up_is_heard(tmp_path: Path) -> None:
    """Of the direct form: nothing is between the two that could lose it."""
    async with Pair("direct", tmp_path, Owner(), Owner()) as pair:
        _, ours = await pair.up()
        ours.send(b"last words")
        ours.close("for a test")
        assert (await pair.theirs.until(3))[1:3] == [b"last words", "down"]


class Broken(Owner):
    """Cannot take a frame."""

    def link_frame(self, link: Link, data: bytes) -> None:
        raise RuntimeError("for a test")


async def test_an_owner_that_fails_loses_the_link_and_the_loop_says_why(form: str, tmp_path: Path) -> None:
    """Nobody is left with a link on which nothing is heard any more."""
    said: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context.get("exception")))
    async with Pair(form, tmp_path, Broken(), Owner()) as pair:
        _, ours = await pair.up()
        ours.send(b"x")
        await pair.ours.until(2)
        assert pair.ours.heard[1] == "down" and [type(each) for each in said] == [RuntimeError]
    asyncio.get_running_loop().set_exception_handler(None)
