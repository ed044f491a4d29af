"""The record in the making: reads see what is not committed yet, whatever was put, deleted and committed in between."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from shards.draft import Draft
from shards.engine import HOME_FAMILY
from shards.engine_memory import MemoryEngine
from shards.rows import BUNDLE, successor

KEYS = st.integers(0, 20).map(lambda n: b"k%02d" % n)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS), st.tuples(st.just("delete"), KEYS), st.tuples(st.just("seal"), KEYS),
        st.tuples(st.just("commit"), KEYS), st.tuples(st.just("many"), KEYS), st.tuples(st.just("look"), KEYS),
        st.tuples(st.just("bundle"), KEYS), st.tuples(st.just("without"), KEYS), st.tuples(st.just("close"), KEYS),
        st.tuples(st.just("fold"), KEYS), st.tuples(st.just("crash"), KEYS),
    ),
    max_size=60,
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_a_scan_is_what_the_store_would_say_were_everything_written(steps: list[tuple[str, bytes]]) -> None:
    """Against a plain dict, with records that are written late and committed later, overlays of any size, bundles, and crashes, after
    which there is what was written."""
    engine = MemoryEngine()
    draft = Draft(engine)
    model: dict[bytes, bytes] = {}
    written = dict(model)
    position, committed, now_ms = 0, 0, 0
    for number, (what, key) in enumerate(steps):
        match what:
            case "put":
                model[key] = b"%d" % number
                draft.put(key, model[key])
            case "delete":
                model.pop(key, None)
                draft.delete(key)
            case "seal":
                position += 1
                draft.close_bundle(now_ms)
                engine.write(draft.seal(position))
                written = dict(model)
            case "bundle":
                model[key] = b"%d" % number
                draft.bundle(key, model[key])
            case "without":
                model.pop(key, None)
                draft.bundle(key, None)
            case "close":
                draft.close_bundle(now_ms)
            case "fold":
                now_ms += 1
                draft.fold(now_ms - 2)
            case "crash":
                draft, model = Draft(engine), dict(written)
            case "commit":
                committed = position
                draft.committed(committed)
            case "many":
                for n in range(100):
                    draft.put(b"k%02d/%02d" % (number % 21, n), b"x")
                    model[b"k%02d/%02d" % (number % 21, n)] = b"x"
            case _:
                assert draft.scan_range(key, b"l", 3) == [(k, model[k]) for k in sorted(model) if key <= k][:3]
                assert draft.get(key) == model.get(key)
        draft.check()
    assert draft.scan(b"k", 1 << 20) == sorted(model.items())
    for _ in range(200):
        draft.fold(now_ms)
        draft.close_bundle(now_ms)
    engine.write(draft.seal(position + 1))
    draft.committed(position + 1)
    assert draft.bundled_rows == 0 and engine.scan(HOME_FAMILY, BUNDLE, successor(BUNDLE), 1) == []
    assert engine.scan(HOME_FAMILY, b"k", b"l", 1 << 20) == sorted(model.items()) == draft.scan(b"k", 1 << 20)
