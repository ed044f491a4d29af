"""The matrix says of each case what the one function says that decides."""

from __future__ import annotations

from access.identity import ANONYMOUS
from access.rights import Extent, Right
from access.rules import compile_access
from access.rules_file import parse_rules
from tests.access_paths.cases import FORMS, PATHS, SIDES, WHENS, cases, rules


def test_there_are_enough_cases_and_every_pair_of_words_is_in_one() -> None:
    """At least a thousand."""
    found = cases()
    assert len(found) >= 1_000 and len({case.number for case in found}) == len(found)
    assert {(case.path, case.side, case.when, case.form) for case in found} == {
        (path, side, when, form) for path in PATHS for side in SIDES for when in WHENS for form in FORMS
    }


def test_the_rules_of_a_case_are_about_its_own_clients_and_deny_what_it_says() -> None:
    """Before the change and behind it; the placeholder's rule leaves the filter granted, and keeps the topic back."""
    found = cases()[::7]
    for changed in (False, True):
        access = compile_access(1, parse_rules(rules(found, changed)), claims=False, decides=False)
        for case in found:
            reader = access.profile(ANONYMOUS, case.reader.encode(), "tcp", "127.0.0.1")
            writer = access.profile(ANONYMOUS, case.writer.encode(), "tcp", "127.0.0.1")
            assert reader is not None and writer is not None
            may = {"reader": reader.may(Right.SUBSCRIBE, case.topic.encode()), "writer": writer.may(Right.PUBLISH, case.topic.encode())}
            other = "writer" if case.side == "reader" else "reader"
            assert may == {case.side: not case.denied(changed), other: True}, case
            extent = reader.grant(Right.SUBSCRIBE, f"case/{case.number}/#".encode())
            denied = Extent.SOME if case.form == "placeholder" else Extent.NONE
            assert extent is (denied if case.side == "reader" and case.denied(changed) else Extent.ALL), case


def test_what_must_come_and_what_must_not_have_nothing_in_common() -> None:
    """And each allowed case has something that must come, so that no path is silent by itself."""
    for case in cases():
        assert not {*case.wanted()} & {*case.never()}, case
        assert case.when != "allowed" or {*case.wanted()}
        assert case.when == "allowed" or {*case.never()}
