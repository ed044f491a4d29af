"""The file of rules: read as a whole, or refused as a whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from access.rights import Right
from access.rules_file import FILTERS_MAX, RULES_MAX, TEXT_BYTES_MAX, RulesError, parse_rules

RULE = '[[rule]]\nallow = ["all"]\ntopics = ["t"]\n'
TOP = "version = 1\n"
PAGE = """
version = 1

[[rule]]                        # nobody reads what is secret, except
deny = ["subscribe"]
topics = ["plant/secret/#"]
unless = { groups = ["engineers"] }

[[rule]]                        # each meter writes below its own name, and hears what is said to it
allow = ["publish"]
topics = ["meters/${client_id}/#"]
groups = ["meters"]

[[rule]]
allow = ["subscribe"]
topics = ["commands/${user}/+", "news/#"]
users = ["meter-*", "gauge-7"]
"""


def test_the_file_of_the_page_is_read() -> None:
    """docs/access.md shows it."""
    secret, own, heard = parse_rules(PAGE)
    assert (secret.allow, own.allow, heard.allow) == (False, True, True)
    assert secret.unless is not None and own.unless is None
    assert own.names == {"client_id"} and heard.names == {"user"}
    assert [topic.widest() for topic in heard.topics] == [b"commands/+/+", b"news/#"]


@pytest.mark.parametrize(
    ("word", "rights"),
    [
        ("publish", Right.PUBLISH | Right.RETAIN | Right.DELAY),
        ("subscribe", Right.SUBSCRIBE | Right.SHARE | Right.REPLAY),
        ("all", Right(63)),
        ("retain", Right.RETAIN),
        ("delay", Right.DELAY),
        ("share", Right.SHARE),
        ("replay", Right.REPLAY),
    ],
)
def test_words_and_the_rights_they_mean(word: str, rights: Right) -> None:
    """The wide ones have the narrow ones in them; several together mean all of them."""
    (alone,) = parse_rules(f'{TOP}[[rule]]\ndeny = ["{word}"]\ntopics = ["t"]')
    (more,) = parse_rules(f'{TOP}[[rule]]\nallow = ["{word}", "retain"]\ntopics = ["t"]')
    assert alone.rights == rights and more.rights == rights | Right.RETAIN


def test_a_file_without_rules_is_one() -> None:
    """It allows nothing, which is what it says."""
    assert parse_rules(TOP) == parse_rules(f"{TOP}rule = []") == ()


def second(lines: str) -> str:
    """As the second rule of a file whose first is right."""
    return f"{TOP}{RULE}[[rule]]\n{lines}"


def about(line: str) -> str:
    return second(f'deny = ["all"]\ntopics = ["t"]\n{line}')


WANTED_TEXTS = "wanted is a list with at least one text"
BROKEN = {
    "": "`version` is missing, wanted is `version = 1`",
    RULE: "`version` is missing",
    "version = 2": "`version` is 2, wanted is `version = 1`",
    "version = true": "`version` is True",
    "version = 1.0": "`version` is 1.0",
    'version = "1"': "`version` is '1'",
    "version = 1\nversion = 1": "not TOML: ",
    "version = ": "not TOML: ",
    TOP + RULE[:-3]: "not TOML: ",
    "\0": "not TOML: ",
    "version = 1\nrule = " + "[" * 5_000: "not TOML|not a file of rules: values within values",
    "version = 1 # \ud800": "character 14 has no UTF-8",
    f"{TOP}rules = []": "unknown key 'rules', wanted are `version` and tables `[[rule]]`",
    f"{TOP}[rule]\nallow = []": "`rule` is no list of tables",
    f"{TOP}rule = [1]": "`rule` is no list of tables",
    f"{TOP}rule = 1": "`rule` is no list of tables",
    second('allow = ["all"]'): "rule 2: `topics` is missing, " + WANTED_TEXTS,
    second('topics = ["t"]'): "rule 2: neither of `allow` and `deny`, one of them is wanted",
    second('allow = ["all"]\ndeny = ["all"]\ntopics = ["t"]'): "rule 2: both of `allow` and `deny`",
    second('allow = "all"\ntopics = ["t"]'): "rule 2: `allow` is 'all', " + WANTED_TEXTS,
    second('allow = []\ntopics = ["t"]'): "rule 2: `allow` is [], " + WANTED_TEXTS,
    second('allow = [1]\ntopics = ["t"]'): "rule 2: 1 in `allow`, wanted are texts",
    second('allow = ["read"]\ntopics = ["t"]'): "rule 2: 'read' in `allow`: no right of that name, known are publish, subscribe",
    second('allow = ["Publish"]\ntopics = ["t"]'): "rule 2: 'Publish' in `allow`: no right",
    second('deny = [""]\ntopics = ["t"]'): "rule 2: '' in `deny`: no right",
    second('allow = ["all"]\ntopics = []'): "rule 2: `topics` is [], " + WANTED_TEXTS,
    second('allow = ["all"]\ntopics = "t"'): "rule 2: `topics` is 't', " + WANTED_TEXTS,
    second('allow = ["all"]\ntopics = ["t", 2021-01-01]'): "rule 2: datetime.date(2021, 1, 1) in `topics`, wanted are texts",
    second('allow = ["all"]\ntopics = ["t", "a/#/b"]'): "rule 2: 'a/#/b' in `topics`: # is not the whole last level",
    second('allow = ["all"]\ntopics = ["${usr}"]'): "rule 2: '${usr}' in `topics`: 'usr' is no placeholder",
    second('allow = ["all"]\ntopics = ["${u\\n}"]'): "rule 2: '${u\\n}' in `topics`: 'u\\n' is no placeholder",
    second('allow = ["all"]\ntopics = ["$share/g/a"]'): "rule 2: '$share/g/a' in `topics`: a shared subscription",
    second(f'allow = ["all"]\ntopics = {["t"] * (FILTERS_MAX + 1)}'): "rule 2: 65 topics, at most 64 are allowed",
    second('allow = ["all"]\ntopic = ["t"]\ntopics = ["t"]'): "rule 2: unknown key 'topic', known are allow, deny, topics, unless, users",
    about("users = []"): "rule 2: `users` is [], " + WANTED_TEXTS,
    about('users = "ann"'): "rule 2: `users` is 'ann', " + WANTED_TEXTS,
    about('users = [["ann"]]'): "rule 2: ['ann'] in `users`, wanted are texts",
    about('users = ["*"]'): "rule 2: '*' in `users`: a name or the beginning of one and * is wanted; without this key everybody is meant",
    about('users = [""]'): "rule 2: '' in `users`: a name or the beginning",
    about('users = ["a*b"]'): "rule 2: 'a*b' in `users`: a * stands at the end only",
    about('groups = ["**"]'): "rule 2: '**' in `groups`: a * stands at the end only",
    about('client_ids = ["*a"]'): "rule 2: '*a' in `client_ids`: a * stands at the end only",
    about('listeners = [""]'): "rule 2: '' in `listeners`: the name of a listener is wanted",
    about('how = ["magic"]'): "rule 2: 'magic' in `how`: nobody comes in that way, known are anonymous, password",
    about('networks = ["10.0.0.1/8"]'): "rule 2: '10.0.0.1/8' in `networks`: an address within a network, wanted is 10.0.0.0/8",
    about('networks = ["10.0.0.0/33"]'): "rule 2: '10.0.0.0/33' in `networks`: no network, such as 10.0.0.0/8",
    about('networks = ["localhost"]'): "rule 2: 'localhost' in `networks`: no network",
    about('networks = [""]'): "rule 2: '' in `networks`: no network",
    about('networks = ["fe80::%eth0/64"]'): "rule 2: 'fe80::%eth0/64' in `networks`: the name of an interface has no meaning here",
    about('networks = ["::ffff:10.0.0.0/104"]'): "rule 2: '::ffff:10.0.0.0/104' in `networks`: IPv4 in words of IPv6",
    about("users" + ".a" * 1_500 + " = 1"): "rule 2: `users` is {'a': {",
    about("unless" + ".a" * 1_500 + " = 1"): "rule 2: unknown key 'a' in `unless`",
    about("unless = {}"): "rule 2: `unless` is {}, wanted is a table with at least one of users, groups",
    about('unless = "ann"'): "rule 2: `unless` is 'ann', wanted is a table",
    about('unless = { topics = ["t"] }'): "rule 2: unknown key 'topics' in `unless`, known are users",
    about("unless = { users = [] }"): "rule 2: unless: `users` is [], " + WANTED_TEXTS,
    about('unless = { users = ["*"] }'): "rule 2: unless: '*' in `users`: a name",
    about('"" = 1'): "rule 2: unknown key ''",
    about(f'"{"k" * 500}" = 1'): "rule 2: unknown key 'kkkkkk",
}


@pytest.mark.parametrize(("text", "story"), BROKEN.items(), ids=range(len(BROKEN)))
def test_a_file_of_which_a_part_is_wrong_is_refused_as_a_whole(text: str, story: str) -> None:
    """With one sentence that names the rule, what was found and what was wanted, and is short enough to be read."""
    with pytest.raises(RulesError) as caught:
        parse_rules(text)
    said = str(caught.value)
    assert any(said.startswith(each) for each in story.split("|")), said
    assert len(said) < 400 and "\n" not in said and said.isprintable()


def test_there_are_bounds() -> None:
    """On the bytes of the file, and on the number of its rules."""
    comment = "#" * (TEXT_BYTES_MAX - len(TOP))
    assert parse_rules(TOP + comment) == ()
    with pytest.raises(RulesError, match=f"{TEXT_BYTES_MAX + 1} bytes, at most {TEXT_BYTES_MAX} are allowed"):
        parse_rules(TOP + comment + "#")
    with pytest.raises(RulesError, match=f"{RULES_MAX + 1} rules, at most {RULES_MAX} are allowed"):
        parse_rules(f"{TOP}rule = [{'{},' * (RULES_MAX + 1)}]")


@given(st.integers(0, len(PAGE)), st.integers(0, len(PAGE)), st.text(max_size=3))
def test_damage_is_refused_or_is_a_file_of_rules(begin: int, count: int, put: str) -> None:
    """Whatever is cut out or put in: never another error than the one that is expected, always a sentence."""
    damaged = PAGE[:begin] + put + PAGE[begin + count :]
    said = "fine"
    try:
        assert len(parse_rules(damaged)) <= 3
    except RulesError as error:
        said = str(error)
    assert said.isprintable() and 0 < len(said) < 400
