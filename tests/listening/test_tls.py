"""TLS of a door: whom it lets in, and what becomes of files that change while it is open."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from actors.access.secrets import packed, write_secrets
from actors.alarms import read_alarms
from actors.listening import contexts as contexts_module
from actors.listening.contexts import ContextError
from actors.listening.options import DoorOptions, TlsOptions
from actors.topology import ListenerInfo
from gateway.transport.limits import Limits
from tests.listening.authority import Authority, Issued
from tests.listening.house import CONNECT, House, connected, ends, says, speaks_mqtt


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    house = House(tmp_path)
    yield house
    house.close()


def door(tls: TlsOptions, identity: str = "none", handshake_ms: int = 60_000) -> DoorOptions:
    return DoorOptions(
        "secure", "tls", Limits(100), "127.0.0.1", 0, tls=tls, identity=identity, connect_ms=60_000, handshake_ms=handshake_ms
    )


def mutual(authority: Authority, wants: Literal["optional", "required"] = "required", crl: str = "") -> TlsOptions:
    broker = authority.issue("broker")
    return TlsOptions(broker.cert, broker.key, client_certificate=wants, ca=authority.ca, crl=crl)


def _of(issued: Issued) -> tuple[str, str]:
    return issued.cert, issued.key


def client(authority: Authority, shows: Issued | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.ca)
    if shows is not None:
        context.load_cert_chain(shows.cert, shows.key)
    return context


async def is_refused(info: ListenerInfo, context: ssl.SSLContext) -> bool:
    """By TLS 1.3 a client learns that its certificate was refused only when it reads."""
    try:
        streams = await connected(info, context)
        streams[1].write(CONNECT)
        return await ends(streams) == b""
    except (ssl.SSLError, ConnectionError):
        return True


async def test_a_listener_shows_what_its_files_have_now_and_connections_go_on(house: House, authority: Authority) -> None:
    """A new certificate needs no restart; who came by the former one stays."""
    issued = authority.issue("broker")
    options = door(TlsOptions(issued.cert, issued.key))
    (info,) = await house.open(options)
    first = await connected(info, client(authority))
    await speaks_mqtt(first)
    renewed = authority.issue("broker")
    house.doors.change([options])
    await house.until_looked()
    second = await connected(info, client(authority))
    shown = second[1].get_extra_info("peercert")
    assert int(shown["serialNumber"], 16) == renewed.serial != issued.serial
    await says(first, b"\xc0\0", b"\xd0\0")


async def test_files_are_looked_at_without_being_asked(house: House, authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever renews certificates need not know that there is a broker."""
    monkeypatch.setattr(contexts_module, "LOOK_SECONDS", 0.02)
    issued = authority.issue("broker")
    (info,) = await house.open(door(TlsOptions(issued.cert, issued.key)))
    renewed, before = authority.issue("broker"), house.doors.context("secure")
    await house.turns(lambda: house.doors.context("secure") is not before)
    streams = await connected(info, client(authority))
    assert int(streams[1].get_extra_info("peercert")["serialNumber"], 16) == renewed.serial


async def test_a_file_that_is_wrong_leaves_the_former_in_force_and_is_an_alarm(house: House, authority: Authority, tmp_path: Path) -> None:
    """Until it is right again."""
    issued = authority.issue("broker")
    options = door(TlsOptions(issued.cert, issued.key))
    (info,) = await house.open(options)
    Path(issued.cert).write_text("nonsense")
    house.doors.change([options])
    await house.until_looked()
    (alarm,) = read_alarms(tmp_path)
    assert alarm.kind == "tls-secure" and issued.cert in alarm.cause and "the certificates before go on" in alarm.cause
    streams = await connected(info, client(authority))
    await speaks_mqtt(streams)
    authority.issue("broker")
    house.doors.change([options])
    await house.until_looked()
    assert not read_alarms(tmp_path)


async def test_a_file_that_could_not_be_read_is_tried_again_as_it_is(
    house: House, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rights that are given later, or descriptors that were short, leave no trace in the file."""
    options = door(TlsOptions(*_of(authority.issue("broker"))))
    (info,) = await house.open(options)
    renewed = authority.issue("broker")

    def unreadable(listener: str, key: str, path: str) -> None:
        raise ContextError(f"{path} cannot be read")

    with monkeypatch.context() as patched:
        patched.setattr(contexts_module, "_check_readable", unreadable)
        for _ in range(2):
            house.doors.change([options])
            await house.until_looked()
    assert len(read_alarms(tmp_path)) == 1
    house.doors.change([options])
    await house.until_looked()
    assert not read_alarms(tmp_path)
    streams = await connected(info, client(authority))
    assert int(streams[1].get_extra_info("peercert")["serialNumber"], 16) == renewed.serial


async def test_looking_goes_on_after_a_look_that_fails(house: House, authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    """For want of a descriptor for the file of secrets, say."""
    monkeypatch.setattr(contexts_module, "LOOK_SECONDS", 0.02)
    await house.open(door(TlsOptions(*_of(authority.issue("broker")))))
    looks: list[int] = []
    look = contexts_module.look

    def fails_first(*asked: Any) -> Any:
        looks.append(1)
        if len(looks) == 1:
            raise OSError("too many open files")
        return look(*asked)

    monkeypatch.setattr(contexts_module, "look", fails_first)
    authority.issue("broker")
    before = house.doors.context("secure")
    await house.turns(lambda: house.doors.context("secure") is not before)


async def test_it_does_not_open_with_files_that_are_wrong(house: House, authority: Authority, tmp_path: Path) -> None:
    """One sentence with the listener, the setting and the file."""
    broker, other = authority.issue("broker"), authority.issue("other")
    locked = authority.issue("locked", password=b"secret")
    for tls, sentence in [
        (TlsOptions(broker.cert + "x", broker.key), r"listeners\.secure\.tls\.cert: .*broker\.pemx cannot be read: No such file"),
        (TlsOptions(broker.cert, other.key), r"listeners\.secure\.tls\.cert and tls\.key: .* cannot be used: key values mismatch"),
        (TlsOptions(locked.cert, locked.key), r"listeners\.secure\.tls\.cert and tls\.key: .*locked\.key cannot be used"),
        (replace(mutual(authority), ca=broker.key), r"listeners\.secure\.tls\.ca: .* cannot be used"),
    ]:
        with pytest.raises(ContextError, match=sentence):
            await house.open(door(tls))


async def test_a_key_with_a_password_opens_with_the_secret_that_the_run_has(house: House, authority: Authority, tmp_path: Path) -> None:
    """A wrong one is one sentence without it, and another one counts as soon as it is there."""
    locked = authority.issue("broker", password=b"secret")
    options = door(TlsOptions(locked.cert, locked.key, "env:KEY"))
    write_secrets(tmp_path, packed({"env:KEY": b"another"}))
    with pytest.raises(ContextError, match=r"broker\.key cannot be used") as caught:
        await house.open(options)
    assert "another" not in str(caught.value)
    write_secrets(tmp_path, packed({"env:KEY": b"secret"}))
    (info,) = await house.open(options)
    streams = await connected(info, client(authority))
    await speaks_mqtt(streams)


async def test_old_versions_are_refused(house: House, authority: Authority) -> None:
    """TLS 1.1 always, 1.2 where 1.3 is wanted."""
    issued = authority.issue("broker")
    tls = TlsOptions(issued.cert, issued.key)
    old, new = await house.open(door(tls), replace(door(replace(tls, version_min="1.3")), name="new"))
    eleven = client(authority)
    # OpenSSL as it comes would not even offer it.
    eleven.set_ciphers("DEFAULT@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        eleven.minimum_version = ssl.TLSVersion.TLSv1_1
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        eleven.maximum_version = ssl.TLSVersion.TLSv1_1
    twelve = client(authority)
    twelve.maximum_version = ssl.TLSVersion.TLSv1_2
    assert await is_refused(old, eleven) and await is_refused(new, twelve)
    for info, context in ((old, twelve), (new, client(authority))):
        streams = await connected(info, context)
        await speaks_mqtt(streams)


async def test_a_certificate_that_is_required_has_to_be_a_good_one(house: House, authority: Authority, tmp_path: Path) -> None:
    """None, an expired one, one of another authority of the same name, a revoked one: refused; the name of a good one is taken."""
    good, expired, revoked = authority.issue("meter-7"), authority.issue("old", days=-1), authority.issue("stolen")
    stranger = Authority(tmp_path / "other").issue("meter-7")
    (info,) = await house.open(door(mutual(authority, crl=authority.revoke(revoked.serial)), "cn"))
    for shown in (None, expired, stranger, revoked):
        assert await is_refused(info, client(authority, shown))
    assert not house.here
    streams = await connected(info, client(authority, good))
    await speaks_mqtt(streams)
    (connection,) = house.here.values()
    assert connection.names == ("meter-7",) and int(connection.serial, 16) == good.serial


async def test_a_certificate_that_is_optional_may_be_missing(house: House, authority: Authority) -> None:
    """Who shows none has no name; who shows one by which the listener names nobody has its number alone."""
    shows = authority.issue("meter-7")
    named, unnamed = await house.open(door(mutual(authority, "optional"), "cn"), replace(door(mutual(authority, "optional")), name="b"))
    streams = [await connected(named, client(authority)), await connected(unnamed, client(authority, shows))]
    for each in streams:
        await speaks_mqtt(each)
    found = sorted((each.listener, each.names, each.serial != "") for each in house.here.values())
    assert found == [("b", (), True), ("secure", (), False)]


async def test_certificates_that_are_revoked_later_are_told(house: House, authority: Authority) -> None:
    """Each once, so that whoever came in by one can be closed; and it does not come in again."""
    one, two = authority.issue("one"), authority.issue("two")
    options = door(mutual(authority, crl=authority.revoke(one.serial)), "cn")
    (info,) = await house.open(options)
    streams = await connected(info, client(authority, two))
    await speaks_mqtt(streams)
    authority.revoke(one.serial, two.serial)
    house.doors.change([options])
    await house.until(lambda: house.serials)
    assert [int(each, 16) for each in house.serials] == [two.serial]
    assert await is_refused(info, client(authority, two))


async def test_a_list_whose_time_is_over_refuses_all_who_show_a_certificate(house: House, authority: Authority) -> None:
    """Nobody knows who was revoked since; who is there stays, and with a new list they come in again."""
    good = authority.issue("good")
    options = door(mutual(authority, "optional", crl=authority.revoke()), "cn")
    (info,) = await house.open(options)
    there = await connected(info, client(authority, good))
    await speaks_mqtt(there)
    authority.revoke(days=-1)
    house.doors.change([options])
    await house.until_looked()
    assert await is_refused(info, client(authority, good))
    await says(there, b"\xc0\0", b"\xd0\0")
    await speaks_mqtt(await connected(info, client(authority)))
    authority.revoke()
    house.doors.change([options])
    await house.until_looked()
    await speaks_mqtt(await connected(info, client(authority, good)))


async def test_who_says_nothing_or_speaks_plainly_has_no_part_in_mqtt(house: House, authority: Authority) -> None:
    """The one is closed when the time of the handshake is over, the other at once."""
    issued = authority.issue("broker")
    (info,) = await house.open(door(TlsOptions(issued.cert, issued.key), handshake_ms=100))
    silent, plain = await connected(info), await connected(info)
    plain[1].write(CONNECT)
    await ends(plain)
    assert await ends(silent) == b"" and not house.here
    (secure,) = house.doors._doors.values()
    await house.turns(lambda: not secure.limiter.connections)
    assert secure.complaints.counts["handshake_failed"] == 2
