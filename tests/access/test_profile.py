"""Profiles answer as the rules do: whatever they keep, share or look up."""

from __future__ import annotations

import gc
from random import Random
from weakref import ref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from access.decide import decide, decide_filter
from access.grants import bound_grants
from access.identity import Grant, Identity
from access.placeholders import parse_template, values_of
from access.profile import FOUND_FROM, TOPIC_BYTES_MAX, TOPICS_MAX, Fitting, RuledProfile, Shelf
from access.rights import Extent, Right
from access.rules import Ruled, compile_access
from access.rules_file import Rule, parse_rules
from access.subjects import EVERYBODY, Names, Subject, caller

NAMES = ["a", "b", "+", "$s", ""]
TEMPLATES = [
    "#",
    "$s/#",
    "+",
    "a",
    "a/#",
    "a/+",
    "b/a",
    "${user}",
    "${user}/#",
    "a/${client_id}",
    "x${user}/b",
    "${attr.at}/${client_id}/#",
    "+/a",
]
TOPICS = [b"a", b"b", b"a/a", b"a/b", b"b/a", b"xa/b", b"%2B", b"%2B/a", b"%24s/b", b"$s/a", b"$s", b"a/%2B", b"a/a/b", b"b/b/", b"c"]
FILTERS = [*TOPICS, b"#", b"+", b"a/#", b"a/+", b"+/a", b"b/a/#", b"$s/#", b"%2B/#", b"+/+/#"]
RIGHTS = st.sampled_from([*Right, Right.PUBLISH | Right.RETAIN, Right.PUBLISH | Right.DELAY, Right(63)])
SUBJECTS = st.one_of(
    st.just(EVERYBODY),
    st.builds(Subject, users=st.builds(Names, st.frozensets(st.sampled_from(NAMES), min_size=1), st.sampled_from([(), ("a",)]))),
    st.builds(Subject, client_ids=st.builds(Names, st.frozensets(st.sampled_from(NAMES), min_size=1))),
    st.builds(Subject, listeners=st.just(frozenset(["tls"]))),
)
RULES = st.builds(
    Rule,
    st.booleans(),
    st.sampled_from([Right(7), Right(56), Right(63), Right.RETAIN, Right.SUBSCRIBE]),
    st.lists(st.sampled_from(TEMPLATES).map(parse_template), min_size=1, max_size=2).map(tuple),
    SUBJECTS,
    st.one_of(st.none(), SUBJECTS.filter(lambda subject: subject != EVERYBODY)),
)
CLIENTS = st.tuples(
    st.builds(
        Identity,
        st.sampled_from(NAMES),
        st.just("jwt"),
        attributes=st.sampled_from([(), (("at", "b"),)]),
        grants=st.sampled_from([(), (Grant(Right(63), (b"a/#", b"c")),)]),
    ),
    st.sampled_from(NAMES).map(str.encode),
    st.sampled_from(["tcp", "tls", ""]),
)
# Few clients, so that they share; questions come again, so that what is kept is asked.
ASKED = st.lists(st.tuples(st.integers(0, 2), RIGHTS, st.sampled_from(TOPICS), st.sampled_from(FILTERS)), min_size=1, max_size=20)


@settings(max_examples=50)
@given(st.lists(RULES, min_size=1, max_size=6), st.lists(CLIENTS, min_size=3, max_size=3), ASKED)
def test_a_profile_never_differs_from_the_rules(
    rules: list[Rule],
    clients: list[tuple[Identity, bytes, str]],
    asked: list[tuple[int, Right, bytes, bytes]],
) -> None:
    """With all that is kept, and shared by several clients."""
    access = compile_access(1, rules, claims=True, decides=False)
    profiles = [access.profile(who, client, listener, "10.0.0.1") for who, client, listener in clients]
    for index, right, topic, topic_filter in [*asked, *asked]:
        who, client, listener = clients[index]
        asks = caller(who, client, listener, "10.0.0.1")
        bound = [rule.bind(values_of(who, client)) for rule in rules if rule.fits(asks)] + list(bound_grants(who.grants))
        profile = profiles[index]
        assert profile is not None
        assert profile.may(right, topic) == decide(bound, right, topic)
        assert profile.grant(right, topic_filter) is decide_filter(bound, right, topic_filter)
        assert all(decide(bound, Right.PUBLISH, each) for each in profile.publishable)
        assert all(decide(bound, Right.SUBSCRIBE, each) for each in profile.readable)


@pytest.mark.parametrize("count", [FOUND_FROM - 1, FOUND_FROM, 3 * FOUND_FROM])
@pytest.mark.parametrize("seed", range(8))
def test_many_rules_that_are_looked_up_decide_as_if_each_was_asked(seed: int, count: int) -> None:
    """In their order, with all that placeholders may have become; every topic and every right."""
    draw = Random(seed)
    templates = [parse_template(text) for text in TEMPLATES if draw.random() < 0.7]
    rights = [Right.PUBLISH, Right.SUBSCRIBE, Right.PUBLISH | Right.RETAIN]
    rules = [Rule(draw.random() < 0.5, draw.choice(rights), (draw.choice(templates),)) for _ in range(count)]
    access = compile_access(1, rules, claims=False, decides=False)
    for name in NAMES:
        who, client = Identity(name, "password"), draw.choice(NAMES).encode()
        bound = [rule.bind(values_of(who, client)) for rule in rules]
        profile = access.profile(who, client, "tcp", "10.0.0.1")
        assert profile is not None
        for topic in TOPICS:
            assert [profile.may(right, topic) for right in rights] == [decide(bound, right, topic) for right in rights]


def ruled(text: str) -> Ruled:
    return compile_access(1, parse_rules(f"version = 1\n{text}"), claims=False, decides=False)


def profile_of(access: Ruled, user: str, client: bytes = b"c") -> RuledProfile:
    found = access.profile(Identity(user, "password"), client, "tcp", "10.0.0.1")
    assert isinstance(found, RuledProfile)
    return found


EVERYTHING = '[[rule]]\nallow = ["all"]\ntopics = ["#"]\n'


@pytest.mark.parametrize(
    ("right", "publishable", "readable"),
    [
        (Right.PUBLISH, {b"t"}, set()),
        (Right.SUBSCRIBE, set(), {b"t"}),
        (Right.PUBLISH | Right.RETAIN, set(), set()),
        (Right.REPLAY, set(), set()),
    ],
)
def test_the_sets_have_what_was_found_allowed_for_their_right(right: Right, publishable: set[bytes], readable: set[bytes]) -> None:
    """And nothing that was asked for together with another right, or denied."""
    profile = profile_of(ruled(EVERYTHING), "ann")
    assert profile.may(right, b"t") and not profile.may(right, b"$SYS/t")
    assert profile.publishable == publishable and profile.readable == readable


def test_a_set_is_bounded_in_count_and_in_bytes() -> None:
    """It is emptied when it is full; long names are decided each time."""
    profile = profile_of(ruled(EVERYTHING), "ann")
    long = b"t" * (TOPIC_BYTES_MAX + 1)
    assert profile.may(Right.PUBLISH, long) and profile.publishable == set()
    for number in range(TOPICS_MAX):
        assert profile.may(Right.PUBLISH, b"%d" % number)
    assert len(profile.publishable) == TOPICS_MAX
    assert profile.may(Right.PUBLISH, b"one more") and profile.publishable == {b"one more"}


def test_all_sets_together_are_bounded() -> None:
    """Also those that no hot path reads, and whoever has them; what is left is right."""
    shelf = Shelf(topics_max=10)
    fitting = Fitting(parse_rules(f"version = 1\n{EVERYTHING}"))
    profiles = [RuledProfile(fitting, {}, (), shelf) for _ in range(3)]
    for number in range(8):
        assert profiles[number % 3].may(Right.PUBLISH, b"%d" % number)
    assert profiles[0].may(Right.RETAIN, b"kept") and profiles[1].may(Right.SUBSCRIBE, b"read")
    assert sum(len(profile.publishable) for profile in profiles) == 8 and profiles[1].readable == {b"read"}
    assert profiles[2].may(Right.SUBSCRIBE, b"one more")
    assert [profile.publishable | profile.readable for profile in profiles] == [set(), set(), {b"one more"}]
    assert profiles[0].may(Right.PUBLISH, b"next") and profiles[2].readable == {b"one more"}, "there is room again"


def test_connections_share_a_profile_when_the_same_rules_say_the_same_of_them() -> None:
    """Another user without placeholders too; not one who has another value or other rules."""
    access = ruled(EVERYTHING + '[[rule]]\nallow = ["all"]\ntopics = ["$SYS/${client_id}"]\nusers = ["own-*"]\n')
    ann = profile_of(access, "ann")
    assert profile_of(access, "bob", b"d") is ann
    own = profile_of(access, "own-1", b"c")
    assert own is not ann and profile_of(access, "own-2", b"c") is own and profile_of(access, "own-1", b"d") is not own
    assert own.may(Right.PUBLISH, b"$SYS/c") and not profile_of(access, "own-1", b"d").may(Right.PUBLISH, b"$SYS/c")


def test_nothing_is_kept_of_a_client_that_is_gone() -> None:
    """Else every client id that ever came would cost memory until the rules change."""
    access = ruled('[[rule]]\nallow = ["all"]\ntopics = ["${client_id}"]')
    profile = profile_of(access, "u", b"one")
    assert profile.may(Right.PUBLISH, b"one")
    gone = ref(profile)
    del profile
    gc.collect()
    assert gone() is None


def test_a_denied_part_makes_a_filter_guarded_and_each_topic_is_judged() -> None:
    """The page's example: nobody reads what is secret, except engineers."""
    access = ruled('[[rule]]\ndeny = ["subscribe"]\ntopics = ["plant/secret/#"]\nunless = { groups = ["engineers"] }\n' + EVERYTHING)
    anybody = profile_of(access, "ann")
    engineer = access.profile(Identity("eve", "password", ("engineers",)), b"c", "tcp", "10.0.0.1")
    assert engineer is not None and engineer.grant(Right.SUBSCRIBE, b"plant/#") is Extent.ALL
    found = [anybody.grant(Right.SUBSCRIBE, each) for each in (b"plant/#", b"plant/secret/1", b"plant/open/#")]
    assert found == [Extent.SOME, Extent.NONE, Extent.ALL]
    assert anybody.may(Right.SUBSCRIBE, b"plant/1") and not anybody.may(Right.SUBSCRIBE, b"plant/secret/1")
    assert anybody.may(Right.PUBLISH, b"plant/secret/1")


class _Asked(dict[str, bytes]):
    """Values, and how often one was asked for."""

    times = 0

    def get(self, key: str, default: bytes | None = None) -> bytes | None:  # type: ignore[override]  # of all that dict.get can be, what is used
        self.times += 1
        return super().get(key, default)


def test_a_question_fills_in_no_rules_that_have_nothing_to_say() -> None:
    """Of many rules with placeholders a connection pays for those that its topics name."""
    rules = parse_rules(
        "version = 1\n" + "".join(f'[[rule]]\nallow = ["all"]\ntopics = ["r{number}/${{user}}/#"]\n' for number in range(100))
    )
    values = _Asked(user=b"u")
    profile = RuledProfile(Fitting(rules), values, (), Shelf())
    assert profile.may(Right.PUBLISH, b"r7/u/x") and not profile.may(Right.PUBLISH, b"r7/v/x")
    assert values.times == 1


def test_what_rules_say_nothing_about_is_left_to_a_plugin_that_decides() -> None:
    """Neither what they allow nor what they deny; without such a plugin, and of the reader's tokens, nothing is."""
    rules = parse_rules(
        'version = 1\n[[rule]]\ndeny = ["retain"]\ntopics = ["a"]\n[[rule]]\nallow = ["publish"]\ntopics = ["b"]\n'
        '[[rule]]\ndeny = ["subscribe"]\ntopics = ["c/secret"]\n'
    )
    with_one, without = [compile_access(1, rules, claims=False, decides=decides) for decides in (True, False)]
    profile = profile_of(with_one, "ann")
    asked = [(Right.PUBLISH, b"a"), (Right.PUBLISH | Right.RETAIN, b"a"), (Right.PUBLISH, b"b"), (Right.SUBSCRIBE, b"b")]
    assert [profile.leaves(right, topic) for right, topic in asked] == [True, False, False, True]
    assert [profile.may(right, topic) for right, topic in asked] == [False, False, True, False]
    assert [profile.leaves_filter(each) for each in (b"c/#", b"c/secret", b"d")] == [True, False, True]
    assert [profile.leaves_shared(each) for each in (b"c/#", b"c/secret", b"c/+/x", b"b")] == [False, False, True, True]
    reader = with_one.profile(Identity("ann", "pipeline"), b"c", "tcp", "10.0.0.1")
    for other in (profile_of(without, "ann"), reader):
        assert isinstance(other, RuledProfile)
        assert not other.leaves(Right.PUBLISH, b"a") and not other.leaves_filter(b"d") and not other.leaves_shared(b"d")
