"""One clear sentence for each way to set the register in etcd up wrongly; and that the right way works, with TLS and with users."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from actors.register.etcd import EtcdRegister, User
from actors.register.etcd_http import Tls
from shards.replication.ports import Outcome, RegisterAway
from shards.replication.register import NO_VALUE, RegisterMistake
from tests.actors.register.etcds import Etcd, asked, etcds, free_ports, ready
from tests.listening.authority import Authority

pytestmark = [pytest.mark.needs("etcd"), pytest.mark.slow]

KEY = "/holdfast/shard/0"
TIMEOUT_S = 10.0


async def sentence(register: EtcdRegister) -> str:
    """What is said about a read; a change is UNKNOWN, and says the same."""
    try:
        with pytest.raises(RegisterMistake) as mistake:
            await register.read(KEY)
        assert await register.cas(KEY, NO_VALUE, b"x") is Outcome.UNKNOWN
        assert register.trouble in str(mistake.value)
        return str(mistake.value)
    finally:
        await register.close()


# ---- TLS


class Secured:
    """An etcd that wants certificates of clients, and the files of those who may come."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory / "ca")
        server = self.authority.issue("etcd")
        client = self.authority.issue("holdfast")
        self.ours = Tls(self.authority.ca, client.cert, client.key)
        self.arguments = [
            *("--cert-file", server.cert, "--key-file", server.key),
            *("--client-cert-auth", "--trusted-ca-file", self.authority.ca),
        ]
        self.other = Authority(directory / "other", name="another authority")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Secured:
    return Secured(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def tls_etcd(secured: Secured) -> Iterator[Etcd]:
    with etcds(1, "https", secured.arguments) as (member,):
        yield member


async def test_with_the_certificates_it_works(secured: Secured, tls_etcd: Etcd) -> None:
    """Own authority, client certificate."""
    await ready([tls_etcd], secured.ours)
    one = EtcdRegister([tls_etcd.endpoint], secured.ours, timeout_s=TIMEOUT_S)
    assert await one.cas(KEY, NO_VALUE, b"x") is Outcome.DONE
    assert (await one.list("/holdfast/")).keys() == {KEY}
    await one.close()


async def test_an_authority_that_is_not_ours_is_not_believed(secured: Secured, tls_etcd: Etcd) -> None:
    """Neither without ca_file nor with another one."""
    await ready([tls_etcd], secured.ours)
    for ca in ("", secured.other.ca):
        said = await sentence(EtcdRegister([tls_etcd.endpoint], Tls(ca, secured.ours.cert, secured.ours.key), timeout_s=TIMEOUT_S))
        assert f"{tls_etcd.endpoint}: its certificate is not believed: " in said
        assert "register.tls.ca" in said


async def test_a_certificate_for_another_host_is_not_believed(secured: Secured, tmp_path: Path) -> None:
    """Whoever has a certificate of the authority for another name is not etcd."""
    other = secured.authority.issue("elsewhere", dns=("elsewhere.example",))
    arguments = ["--cert-file", other.cert, "--key-file", other.key]
    with etcds(1, "https", arguments) as (member,):
        by_name = member.endpoint.replace("127.0.0.1", "localhost")
        await ready([member], Tls(secured.authority.ca))
        assert "its certificate is not believed: Hostname mismatch" in await sentence(
            EtcdRegister([by_name], Tls(secured.authority.ca), timeout_s=TIMEOUT_S)
        )


async def test_without_a_certificate_of_ours_etcd_refuses(secured: Secured, tls_etcd: Etcd) -> None:
    """None, and one of another authority."""
    await ready([tls_etcd], secured.ours)
    theirs = secured.other.issue("holdfast")
    for tls in (Tls(secured.authority.ca), Tls(secured.authority.ca, theirs.cert, theirs.key)):
        said = await sentence(EtcdRegister([tls_etcd.endpoint], tls, timeout_s=TIMEOUT_S))
        assert "etcd refuses our certificate (register.tls.cert, register.tls.key)" in said


async def test_the_wrong_scheme_is_named(secured: Secured, tls_etcd: Etcd, plain: Etcd) -> None:
    """http:// to one with TLS, https:// to one without."""
    await ready([tls_etcd], secured.ours)
    said = await sentence(EtcdRegister([tls_etcd.endpoint.replace("https", "http")], timeout_s=TIMEOUT_S))
    assert "etcd speaks TLS there: its address begins with https://" in said
    await ready([plain])
    said = await sentence(EtcdRegister([plain.endpoint.replace("http", "https")], secured.ours, timeout_s=TIMEOUT_S))
    assert "does not speak TLS: is its address one with http://?" in said


async def test_files_that_cannot_be_used_are_named_before_anything_is_asked(secured: Secured, tmp_path: Path) -> None:
    """Missing, no certificate at all, a key of another certificate."""
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    for tls, said in (
        (Tls(ca="/nowhere/ca.pem"), "register.tls.ca = /nowhere/ca.pem: No such file or directory"),
        (Tls(ca=str(empty)), f"register.tls.ca = {empty}: "),
        (Tls(cert="/nowhere/c.pem", key="/nowhere/c.key"), "register.tls.cert = /nowhere/c.pem with register.tls.key"),
        (Tls(cert=secured.ours.cert, key=secured.other.issue("x").key), "key values mismatch"),
    ):
        with pytest.raises(RegisterMistake) as mistake:
            EtcdRegister(["https://127.0.0.1:1"], tls)
        assert said in str(mistake.value)


# ---- users


@pytest.fixture(scope="module")
def plain() -> Iterator[Etcd]:
    with etcds(1) as (member,):
        yield member


async def with_users(member: Etcd) -> None:
    """root, and holdfast that may read and write below /holdfast/."""
    await ready([member])
    begin, end = b64encode(b"/holdfast/").decode(), b64encode(b"/holdfast0").decode()
    await asked(member, "/v3/auth/user/add", {"name": "root", "password": "root"})
    await asked(member, "/v3/auth/user/grant", {"user": "root", "role": "root"})
    await asked(member, "/v3/auth/user/add", {"name": "holdfast", "password": "right"})
    await asked(member, "/v3/auth/role/add", {"name": "register"})
    permission = {"permType": "READWRITE", "key": begin, "range_end": end}
    await asked(member, "/v3/auth/role/grant", {"name": "register", "perm": permission})
    await asked(member, "/v3/auth/user/grant", {"user": "holdfast", "role": "register"})
    await asked(member, "/v3/auth/enable", {})


@pytest.fixture
async def guarded() -> AsyncIterator[Etcd]:
    """Tokens that nobody uses live one second."""
    with etcds(1, extra=["--auth-token-ttl", "1"]) as (member,):
        await with_users(member)
        yield member


async def test_with_a_password_it_works_and_goes_on_when_tokens_end(guarded: Etcd) -> None:
    """A token that was forgotten is fetched anew, by many at once and after a restart of etcd, and no change is made twice or lost."""
    one = EtcdRegister([guarded.endpoint], user=User("holdfast", "right"), timeout_s=TIMEOUT_S)
    assert await one.cas(KEY, NO_VALUE, b"1") is Outcome.DONE
    for value in (b"2", b"3"):
        if value == b"2":
            await asyncio.sleep(3.0)
        else:
            guarded.kill()
            guarded.start()
            await ready([guarded])
        held = await one.read(KEY)
        assert held is not None
        outcomes = await asyncio.gather(*(one.cas(KEY, held.version, value) for _ in range(8)))
        assert sorted(each.value for each in outcomes) == ["conflict"] * 7 + ["done"]
    held = await one.read(KEY)
    assert held is not None
    assert held.value == b"3"
    await one.close()


async def test_mistakes_with_users_are_named(guarded: Etcd, plain: Etcd) -> None:
    """A wrong password, an unknown user, none, keys that are not ours, an etcd without users. No sentence has the password."""
    await ready([plain])
    for user, said in (
        (User("holdfast", "hunter2"), "etcd refuses the user or the password (register.username, register.password)"),
        (User("nobody", "hunter2"), "etcd refuses the user or the password"),
        (None, "etcd wants a user: set register.username and register.password"),
    ):
        found = await sentence(EtcdRegister([guarded.endpoint], user=user, timeout_s=TIMEOUT_S))
        assert said in found
        assert "hunter2" not in found
    one = EtcdRegister([guarded.endpoint], user=User("holdfast", "right"), timeout_s=TIMEOUT_S)
    with pytest.raises(RegisterMistake, match=r"etcd does not let this user read and write the keys of the register \(register.prefix\)"):
        await one.read("/other/key")
    await one.close()
    found = await sentence(EtcdRegister([plain.endpoint], user=User("holdfast", "right"), timeout_s=TIMEOUT_S))
    assert "etcd has no users: run `etcdctl auth enable`, or unset register.username" in found
    assert "right" not in repr(User("holdfast", "right"))


# ---- others


async def test_no_endpoint_that_answers_is_no_mistake(plain: Etcd) -> None:
    """It may come; each endpoint is named with what was met."""
    endpoints = [f"http://127.0.0.1:{port}" for port in free_ports(2)]
    one = EtcdRegister(endpoints, timeout_s=TIMEOUT_S)
    with pytest.raises(RegisterAway) as away:
        await one.read(KEY)
    assert not isinstance(away.value, RegisterMistake)
    assert all(f"{endpoint}: " in str(away.value) for endpoint in endpoints)
    assert await one.cas(KEY, NO_VALUE, b"x") is Outcome.UNKNOWN
    await one.close()


async def test_members_of_two_clusters_are_not_one_register(plain: Etcd) -> None:
    """The second is never written to: half of the records would be in each."""
    with etcds(1) as (other,):
        await ready([plain, other])
        one = EtcdRegister([plain.endpoint], timeout_s=TIMEOUT_S)
        await one.cas("/holdfast/two", NO_VALUE, b"x")
        await one.close()
        both = EtcdRegister([plain.endpoint, other.endpoint], timeout_s=TIMEOUT_S)
        assert await both.read("/holdfast/two") is not None
        plain.kill()
        try:
            with pytest.raises(RegisterAway, match="it is of another etcd cluster than the one that answered before"):
                await both.read("/holdfast/two")
            assert await both.cas("/holdfast/two", NO_VALUE, b"y") is Outcome.UNKNOWN
            alone = EtcdRegister([other.endpoint], timeout_s=TIMEOUT_S)
            assert await alone.read("/holdfast/two") is None
            await alone.close()
        finally:
            plain.start()
            await both.close()


@asynccontextmanager
async def answering(status: int, answers: dict[str, object]) -> AsyncIterator[str]:
    """Something on a port that answers paths with JSON, and all others with this status."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        path = head.split()[1].decode()
        body = json.dumps(answers[path]).encode() if path in answers else b"no such page"
        code = 200 if path in answers else status
        writer.write(b"HTTP/1.1 %d x\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (code, len(body)) + body)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({"/version": {"etcdserver": "3.3.27"}}, "etcd 3.3.27 is too old, wanted 3.4 or later"),
        ({"/version": {"etcdserver": "3.5.1"}}, "etcd 3.5.1 can corrupt its data in a crash, wanted 3.5.3 or later"),
        ({"/version": {"etcdserver": "3.5.16"}}, "no etcd 3.4 or later answers there, or its JSON gateway is off"),
        ({"/version": {"version": "7"}}, "what answers is no etcd"),
        ({}, "no etcd 3.4 or later answers there"),
    ],
)
async def test_what_is_no_etcd_that_can_be_used_is_named(answers: dict[str, object], said: str) -> None:
    """By its version, or by its not having one."""
    async with answering(404, answers) as endpoint:
        assert said in await sentence(EtcdRegister([endpoint], timeout_s=TIMEOUT_S))
