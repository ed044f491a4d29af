"""What a client may see of a server that was sent such bytes: well-formed answers, a close or a code that its version has, or service."""

from __future__ import annotations

from dataclasses import dataclass

from mqtt.decode import DecodeError, Decoder
from mqtt.packets import Auth, Connack, Disconnect, Item, Pingresp
from tests.fuzz.cases import Case

ANSWER_BYTES_MAX = 256 << 20


class Unjust(AssertionError):
    """The server did what it may not do."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What came back.  version: that of the CONNECT, None while none was understood.  failed: why the decoder refused the bytes,
    where that is known.  held: bytes of a packet whose end did not come.  pinged: a PINGREQ went out last.  left: it said
    DISCONNECT, or its connection was reset, so that not all may have come that was sent.  whole: all has come that the server had to say;
    else the last packet may be half here."""

    version: int | None
    out: bytes
    closed: bool
    failed: str | None = None
    held: int = 0
    pinged: bool = False
    left: bool = False
    whole: bool = True


def judged(case: Case, seen: Seen) -> None:
    """Raises Unjust."""
    answers = _answers(seen)
    if seen.failed is not None and not seen.closed:
        raise Unjust(f"refused ({seen.failed}), and still there")
    if not answers:
        if case.login and (seen.failed is None or seen.version == 5):
            raise Unjust("a good CONNECT got no answer")
        if not seen.closed and not seen.held and case.wire and not case.spoiled:
            raise Unjust("a whole packet got no answer")
        return
    if not case.login and isinstance(answers[0], Auth):
        answers = [each for each in answers if not isinstance(each, Auth)]
        if not answers:
            return  # It was asked to go on, and has not.
    first, last = answers[0], answers[-1]
    if not isinstance(first, Connack):
        raise Unjust(f"{first} before CONNACK")
    # What is wrong in the same read as a good CONNECT is refused before its CONNACK.
    if case.login and first.reason and seen.failed is None:
        raise Unjust(f"a good CONNECT got {first}")
    if first.reason and (len(answers) > 1 or not seen.closed):
        raise Unjust(f"after {first} came {answers[1:]}, closed: {seen.closed}")
    if any(isinstance(each, Connack) for each in answers[1:]) or any(isinstance(each, Disconnect) for each in answers[:-1]):
        raise Unjust(f"CONNACK twice, or something after DISCONNECT: {answers}")
    if isinstance(last, Disconnect):
        if last.reason < 0x80 or not seen.closed:
            raise Unjust(f"{last}, closed: {seen.closed}")
    elif seen.failed is not None and seen.version == 5 and not first.reason and not seen.left:
        raise Unjust(f"an MQTT 5 client was not told why it is closed ({seen.failed}): {answers}")
    if seen.pinged and not seen.closed and not any(isinstance(each, Pingresp) for each in answers):
        raise Unjust(f"neither served nor gone: {answers}")


def _answers(seen: Seen) -> list[Item]:
    if not seen.out:
        return []
    if seen.version not in (3, 4, 5):
        raise Unjust(f"{seen.out!r} in answer to nothing that names a version")
    reader = Decoder(seen.version, ANSWER_BYTES_MAX, role="client")
    try:
        answers = reader.feed(seen.out)
    except DecodeError as error:
        raise Unjust(f"an answer that is no MQTT {seen.version}: {error.detail}: {seen.out!r}") from None
    if reader.held_bytes and seen.whole:
        raise Unjust(f"half a packet in answer: {seen.out!r}")
    return answers
