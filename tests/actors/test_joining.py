"""Why a Ray cannot be joined, and what should be known of one that was: sentences."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from actors.environment import RECONNECT
from actors.joining import REFUSALS, CannotJoin, about_head, reach, why_not, wrong_token

TOKEN = {"RAY_AUTH_MODE": "token"}


def test_the_token_that_counts_is_the_one_that_is_named(tmp_path: Path) -> None:
    """RAY_AUTH_TOKEN comes before the file, and the file is named with what is wrong with it."""
    held, empty = tmp_path / "held", tmp_path / "empty"
    held.write_text("ab")
    empty.write_text("\n")
    cases = {
        "wants a token and was shown none: set RAY_AUTH_MODE=token": {},
        "was shown none": {"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": "x"},
        "does not take the token in RAY_AUTH_TOKEN: ": TOKEN | {"RAY_AUTH_TOKEN": "x", "RAY_AUTH_TOKEN_PATH": str(held)},
        f"does not take the token in {held}: it was started with another": TOKEN | {"RAY_AUTH_TOKEN_PATH": str(held)},
        f"{empty}, which is empty": TOKEN | {"RAY_AUTH_TOKEN_PATH": str(empty)},
        f"{tmp_path / 'none'}, which cannot be read: No such file": TOKEN | {"RAY_AUTH_TOKEN_PATH": str(tmp_path / "none")},
    }
    for part, environment in cases.items():
        sentence = wrong_token("h:1", environment)
        assert part in sentence and "the Ray at h:1" in sentence and "\n" not in sentence


def test_a_refusal_is_known_wherever_ray_hides_it() -> None:
    """As what it raised, or in the story of what it raised for another reason; that one is final, others are not."""
    hidden = ConnectionError("Failed to connect to Ray cluster at h:1")
    hidden.__cause__ = RuntimeError("Last connection error: Traceback\n RPC error: InvalidAuthToken: missing")
    for error in (hidden, *(each("no file") for each in REFUSALS)):
        found = why_not("h:1", error, {})
        assert found.final and str(found) == wrong_token("h:1", {})
    other = why_not("h:1", ConnectionError("Could not find\n any running Ray"), {})
    assert (str(other), other.final) == ("Could not find any running Ray", False)
    assert str(why_not("h:1", ConnectionError(), {})) == "ConnectionError"


def test_a_head_that_is_not_there_is_said_before_ray_waits_for_it() -> None:
    """Ray would end the process, and nobody would know why."""
    with socket.create_server(("127.0.0.1", 0)) as there:
        port = there.getsockname()[1]
        reach(f"127.0.0.1:{port}")
    with pytest.raises(CannotJoin, match=rf"no head of a Ray cluster answers at 127.0.0.1:{port} \(Connection refused\)") as refused:
        reach(f"127.0.0.1:{port}")
    assert not refused.value.final
    reach("auto")


@pytest.mark.parametrize(
    ("on_disk", "reconnect_s", "part"),
    [
        (False, 60, "keeps nothing on disk"),
        (False, None, "keeps nothing on disk"),
        (True, 60, f"waits 60 s for a head that is gone and then ends, and the broker with it: set {RECONNECT}=86400"),
        (True, 86400, None),
        (True, None, None),
        (None, 60, None),
    ],
)  # fmt: skip
def test_what_the_end_of_its_head_would_mean_is_said_when_it_is_known(
    on_disk: bool | None, reconnect_s: int | None, part: str | None
) -> None:
    """One sentence, or none."""
    found = list(about_head(on_disk, reconnect_s))
    assert found == [] if part is None else (len(found) == 1 and part in found[0])
