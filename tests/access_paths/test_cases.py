"""The matrix says of each case what the one function says that decides."""

from __future__ import annotations

from pathlib import Path

from access.asked import Asked
from access.grants import read_grants
from access.identity import ANONYMOUS, Grant, Identity
from access.profile import Profile
from access.rights import Extent, Right
from access.rules import Access, compile_access
from access.rules_file import PUBLISHING, READING, parse_rules
from tests.access_paths import plugged
from tests.access_paths.bulk import Bulk, bulk_cases
from tests.access_paths.cases import FORMS, JUDGED_LATER, PATHS, PLUGIN, QOS_2, SIDES, WHENS, Case, cases, rules


def profile(access: Access, who: Identity, client: str, listener: str = "tcp") -> Profile:
    found = access.profile(who, client.encode(), listener, "127.0.0.1")
    assert found is not None
    return found


def profile_in(case: Case, access: Access, changed: bool, client: str) -> Profile:
    """Of one of its clients: the subject of a claim shows a token, everybody else says nothing of himself."""
    claimed = case.form == "claim" and client == case.subject
    return profile(access, Identity(client, "jwt", grants=read_grants(case.claim(changed))) if claimed else ANONYMOUS, client)


def test_there_are_enough_cases_and_every_pair_of_words_is_in_one() -> None:
    """At least a thousand; PUBREC is of QoS 2."""
    found = cases()
    assert len(found) >= 1_000 and len({case.number for case in found}) == len(found)
    assert {(case.path, case.side, case.when, case.form) for case in found} == {
        (path, side, when, form)
        for path in PATHS
        for side in SIDES
        for when in WHENS
        for form in FORMS
        if path in QOS_2 or when != "revoked before PUBREC"
    }


def test_the_rules_of_a_case_are_about_its_own_clients_and_deny_what_it_says() -> None:
    """Before the change and behind it; the placeholder's rule leaves the filter granted, and keeps the topic back."""
    found = cases()[::13]
    assert {case.form for case in found} == {*FORMS}
    for changed in (False, True):
        access = compile_access(1, parse_rules(rules(found, changed)), claims=True, decides=False)
        for case in found:
            reader, writer = profile_in(case, access, changed, case.reader), profile_in(case, access, changed, case.writer)
            may = {"reader": reader.may(Right.SUBSCRIBE, case.topic.encode()), "writer": writer.may(Right.PUBLISH, case.topic.encode())}
            other = "writer" if case.side == "reader" else "reader"
            assert may == {case.side: not case.denied(changed), other: True}, case
            extent = reader.grant(Right.SUBSCRIBE, f"case/{case.number}/#".encode())
            denied = Extent.SOME if case.form == "placeholder" else Extent.NONE
            assert extent is (denied if case.side == "reader" and case.denied(changed) else Extent.ALL), case


def test_the_rules_of_a_token_are_about_it_alone_and_deny_what_its_case_says() -> None:
    """Of its rules and its filters together; somebody of MQTT on the other side may do what it wants."""
    found = bulk_cases()
    for changed in (False, True):
        access = compile_access(1, parse_rules(rules(found, changed)), claims=True, decides=False)
        for case in found:
            topic, topic_filter = case.topic.encode(), case.topic_filter.encode()
            token, other = profile(access, who(case, changed), "", "pipeline"), profile(access, ANONYMOUS, case.client)
            assert other.may(Right.PUBLISH, topic) and other.grant(Right.SUBSCRIBE, topic_filter) is Extent.ALL, case
            may = token.may(Right.PUBLISH, topic) if case.verb == "APPEND" else token.grant(Right.REPLAY, topic_filter) is Extent.ALL
            assert may is not case.denied(changed), case


def who(case: Bulk, changed: bool) -> Identity:
    """As the reader makes it of an entry of the configuration."""
    filters = (b"elsewhere/#" if "elsewhere/#" in case.entry(changed) else case.topic_filter.encode(),)
    return Identity(f"pipeline/{case.name}", "pipeline", grants=(Grant(READING | PUBLISHING, filters),))


def test_what_must_come_and_what_must_not_have_nothing_in_common() -> None:
    """And each allowed case has something that must come, so that no path is silent by itself."""
    for case in cases():
        assert not {*case.wanted()} & {*case.never()}, case
        assert case.when != "allowed" or {*case.wanted()}
        assert case.when == "allowed" or {*case.never()} or case.kept


def test_what_was_left_with_a_claim_is_the_only_thing_that_comes_without_a_right() -> None:
    """A will, a retained and a delayed message are judged by the token that their writer had; nothing else is published later and comes."""
    for case in cases():
        if case.when.startswith("revoked") and case.mark("B") in {*case.wanted()}:
            assert case.path == "will" and case.kept
        assert not case.kept or (case.path in JUDGED_LATER and case.form == "claim" and case.side == "writer"), case


async def test_the_plugin_denies_what_its_cases_say(tmp_path: Path) -> None:
    """To the client in question, before the change and behind it; and every path is there, with what must come and what must not."""
    alone, with_rules = plugged.plugin_cases()
    found = [*alone, *with_rules]
    assert len({case.number for case in found}) == len(found) and {case.form for case in found} == {PLUGIN}
    assert {(case.path, case.side) for case in with_rules} == {(path, side) for path in PATHS for side in SIDES}
    says = tmp_path / "denied"
    plugin = plugged.Denying()
    await plugin.start({"denied": str(says)})
    for changed in (False, True):
        (tmp_path / "part").write_text(plugged.denied(found, changed))
        (tmp_path / "part").replace(says)
        for case in found:
            asked = {
                "reader": Asked(ANONYMOUS, case.reader, "receive", case.topic),
                "writer": Asked(ANONYMOUS, case.writer, "publish", case.topic),
            }
            may = {side: await plugin.may(each) for side, each in asked.items()}
            assert may == {case.side: not case.denied(changed), ("writer" if case.side == "reader" else "reader"): True}, case
    for case in found:
        assert not {*case.wanted()} & {*case.never()}, case
        assert case.kept == (case.path in JUDGED_LATER and case.side == "writer" and case.when != "denied"), case
