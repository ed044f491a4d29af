"""Who a client is: asked before its home is, by attempts; AUTH of clients that named a method, at CONNECT and again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from access.identity import ANONYMOUS, Identity
from access.login import Login
from gateway.events import (
    AuthChallenged,
    Authenticate,
    Authenticated,
    AuthRefused,
    CloseSocket,
    ContinueAuth,
    ForgetAuth,
    IdentitiesRevoked,
    Opened,
    PauseReading,
    SocketLost,
    Stopping,
    ToShard,
    Write,
)
from gateway.options import Options
from mqtt.encode import encode
from mqtt.packets import Auth, Connack, Connect, Disconnect, Item, Pingreq, Pingresp, Properties
from mqtt.reason import ReasonCode
from shards.frames import Connect as ConnectEntry
from tests.gateway.scripted import Client, Shell, message

R = ReasonCode
METHOD = "SCRAM-SHA-256"
ANN = Identity("ann", "password")
SCRAM_ANN = Identity("ann", "scram")
ASKED = Login("c", 5, None, None, None, b"", "tcp", "", True, (), "", False)


def named(**properties: object) -> Properties:
    return Properties(authentication_method=METHOD, **properties)  # type: ignore[arg-type]


def asking(shell: Shell, **fields: object) -> Client:
    """A client whose CONNECT was received, and of whom is asked."""
    client = shell.client()
    client.send(Connect(5, "c", **fields))  # type: ignore[arg-type]
    return client


def entries(shell: Shell) -> list[ConnectEntry]:
    return [entry for request in shell.requests for entry in request.entries if isinstance(entry, ConnectEntry)]


def refusal(code: ReasonCode, version: int = 5) -> bytes:
    return encode(version, Connack(False, code))


# ------------------------------------------------------------------ who says nothing
@pytest.mark.parametrize(("anonymous", "loopback", "let_in"), [
    ("no", True, False), ("no", False, False), ("loopback", True, True), ("loopback", False, False),
    ("yes", True, True), ("yes", False, True), ("", True, True), ("", False, False),
])  # fmt: skip
@pytest.mark.parametrize(("version", "answer"), [(5, refusal(R.NOT_AUTHORIZED)), (4, b"\x20\x02\x00\x05"), (3, b"\x20\x02\x00\x05")])
def test_the_listener_says_whether_somebody_without_a_name_comes_in(
    anonymous: str, loopback: bool, let_in: bool, version: int, answer: bytes
) -> None:
    """At once, and nobody else is asked; where nothing is said it is "loopback"."""
    shell = Shell(Options(anonymous={"tcp": anonymous} if anonymous else {}))
    client = shell.client(version)
    shell.turn(Opened(client.socket + 100, "tcp", "peer", loopback=loopback))
    shell.clients[client.socket + 100] = shell.clients.pop(client.socket)
    client.socket += 100
    effects = client.send(Connect(version, "c"))
    assert shell.asked == []
    if let_in:
        assert effects == [ToShard(0, 1, [ConnectEntry(b"c", True, 0, version, None)])]
    else:
        why = "anonymous, which its listener does not take from there"
        assert effects == [Write(client.socket, answer), CloseSocket(client.socket, why)]


@pytest.mark.parametrize(
    ("connect", "login"),
    [
        (Connect(5, "c", username="ann"), replace(ASKED, user="ann")),
        (Connect(5, "c", username=""), replace(ASKED, user="")),
        (Connect(5, "c", password=b"token"), replace(ASKED, password=b"token")),
        (Connect(4, "c", username="ann", password=b"word"), replace(ASKED, version=4, user="ann", password=b"word")),
        (Connect(5, "c", properties=named()), replace(ASKED, method=METHOD)),
        (Connect(5, "c", properties=named(authentication_data=b"n,,")), replace(ASKED, method=METHOD, data=b"n,,")),
    ],
)
def test_who_says_something_is_asked_about(connect: Connect, login: Login) -> None:
    """With all that CONNECT has; the home hears nothing meanwhile, and more than came along is not read."""
    shell = Shell(Options(anonymous={"tcp": "yes"}))
    client = shell.client(connect.version)
    assert client.send(connect) == [Authenticate(client.socket, 1, login)]
    assert shell.requests == type(shell.requests)()


def test_with_a_plugin_or_a_certificate_who_says_nothing_is_asked_about_too() -> None:
    """The names of the certificate go along."""
    shell = Shell(Options(plugin=True))
    client = shell.client()
    assert client.send(Connect(5, "c")) == [Authenticate(client.socket, 1, ASKED)]
    shell = Shell()
    client = shell.client()
    shell.turn(Opened(101, "tls", "peer", "10.0.0.9", loopback=False, names=("m7",), serial="0AFF", takes_certificate=True))
    shell.clients[101] = client
    client.socket = 101
    login = replace(
        ASKED, listener="tls", address="10.0.0.9", loopback=False, names=("m7",), serial="0AFF", takes_certificate=True
    )  # fmt: skip
    assert client.send(Connect(5, "c")) == [Authenticate(101, 1, login)]


def test_no_secret_is_in_what_is_asked_when_it_is_printed() -> None:
    """Events are in stories of broken invariants, and those are logged."""
    asked = Authenticate(1, 1, replace(ASKED, password=b"geheim", data=b"geheimer"))
    assert "geheim" not in repr(asked) and "geheim" not in repr(Connect(5, "c", username="ann", password=b"geheim"))


# ------------------------------------------------------------------ the answer
def test_the_home_is_asked_once_it_is_known_who_it_is() -> None:
    """With the identity; CONNACK as ever; what came along with CONNECT is done after it."""
    shell = Shell()
    client = shell.client()
    effects = shell.turn(client.event(Connect(5, "c", username="ann", password=b"x"), Pingreq()))
    assert effects[1:] == [PauseReading(client.socket, True)]
    shell.turn(Authenticated(client.socket, 1, ANN))
    assert entries(shell) == [ConnectEntry(b"c", True, 0, 5, None, False, b"ann", ANN.pack(), "")]
    shell.answer()
    connack, pong = client.take()
    assert isinstance(connack, Connack) and connack.reason == 0 and pong == Pingresp() and not client.paused


@pytest.mark.parametrize(
    ("code", "return_code"),
    [(0x86, 4), (0x87, 5), (0x88, 3), (0x89, 3), (0x8C, 4)],
)
@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_no_is_said_in_the_words_of_the_version(code: int, return_code: int, version: int) -> None:
    """And the connection is closed; its home has never heard of it."""
    shell = Shell()
    client = shell.client(version)
    client.send(Connect(version, "c", username="ann"))
    effects = shell.turn(AuthRefused(client.socket, 1, code, "wrong"))
    answer = refusal(R(code)) if version == 5 else bytes((0x20, 2, 0, return_code))
    assert effects == [Write(client.socket, answer), CloseSocket(client.socket, "wrong"), ForgetAuth(client.socket)]
    assert not shell.requests and shell.core.counters.connections_refused == 1


def test_an_answer_to_another_attempt_means_nothing() -> None:
    """Nor does one for a socket that is gone, a second one, or one while it is the client's turn."""
    shell = Shell()
    client = asking(shell, properties=named())
    assert shell.turn(Authenticated(client.socket, 0, ANN), AuthRefused(client.socket, 2, 0x86, ""), AuthChallenged(9, 1, b"")) == []
    shell.turn(AuthChallenged(client.socket, 1, b"s1"))
    assert client.take() == [Auth(R.CONTINUE_AUTHENTICATION, named(authentication_data=b"s1"))]
    assert shell.turn(Authenticated(client.socket, 1, ANN), AuthRefused(client.socket, 1, 0x86, "")) == []
    client.send(Auth(R.CONTINUE_AUTHENTICATION, named(authentication_data=b"c2")))
    shell.turn(Authenticated(client.socket, 1, SCRAM_ANN, b"v"))
    assert len(entries(shell)) == 1
    assert shell.turn(Authenticated(client.socket, 1, ANN), AuthRefused(client.socket, 1, 0x86, "")) == []


def test_an_answer_after_the_end_of_the_connection_means_nothing() -> None:
    """Whoever was asked is told that nobody waits."""
    shell = Shell()
    client = asking(shell, username="ann")
    assert shell.turn(SocketLost(client.socket, "gone")) == [ForgetAuth(client.socket)]
    assert shell.turn(Authenticated(client.socket, 1, ANN)) == []
    assert not shell.requests


def test_a_stop_ends_those_of_whom_is_asked() -> None:
    """With 0x88: their CONNECT was not answered yet."""
    shell = Shell()
    client = asking(shell, username="ann")
    effects = shell.turn(Stopping())
    assert [effect for effect in effects if not isinstance(effect, PauseReading)] == [
        Write(client.socket, refusal(R.SERVER_UNAVAILABLE)), CloseSocket(client.socket, "shutdown"), ForgetAuth(client.socket),
    ]  # fmt: skip
    assert shell.turn(Authenticated(client.socket, 1, ANN)) == [] and shell.core.connections == 0


def test_who_is_asked_has_its_time() -> None:
    """auth_wait_ms, then 0x88."""
    shell = Shell(Options(auth_wait_ms=2_000, connect_wait_ms=10_000))
    client = asking(shell, username="ann")
    shell.pass_time(1_900)
    assert client.take() == []
    shell.pass_time(1_000)
    assert client.take() == [Connack(False, R.SERVER_UNAVAILABLE)] and client.closed
    assert shell.asked[1:] == [ForgetAuth(client.socket)] and shell.core.counters.connections_timed_out == 1


# ------------------------------------------------------------------ AUTH
def online(shell: Shell, **verdict: int) -> Client:
    """A client that came in by the method."""
    client = asking(shell, properties=named(authentication_data=b"c1"))
    shell.turn(AuthChallenged(client.socket, 1, b"s1"))
    client.send(Auth(R.CONTINUE_AUTHENTICATION, named(authentication_data=b"c2")))
    shell.turn(Authenticated(client.socket, 1, SCRAM_ANN, b"v=1", **verdict))
    shell.answer()
    return client


def test_a_method_goes_to_and_fro_until_it_is_known_who_it_is() -> None:
    """CONNACK names the method and has its last word [MQTT-4.12.0-2], [MQTT-4.12.0-5]."""
    shell = Shell()
    client = online(shell)
    assert shell.asked[1:] == [ContinueAuth(client.socket, 1, b"c2")]
    challenge, connack = client.take()
    assert challenge == Auth(R.CONTINUE_AUTHENTICATION, named(authentication_data=b"s1"))
    assert isinstance(connack, Connack) and connack.reason == 0
    assert (connack.properties.authentication_method, connack.properties.authentication_data) == (METHOD, b"v=1")


@pytest.mark.parametrize(
    "packet",
    [
        Auth(R.CONTINUE_AUTHENTICATION, Properties(authentication_method="OTHER")),
        Auth(R.RE_AUTHENTICATE, named()),
        Pingreq(),
        message(b"a", b"x", 1, 1),
    ],
)
@pytest.mark.parametrize("challenged", [True, False])
def test_what_a_client_may_not_send_before_connack_ends_it(packet: Item, challenged: bool) -> None:
    """CONNACK 0x82, and nothing of it is done [MQTT-3.1.2-30]."""
    shell = Shell()
    client = asking(shell, properties=named())
    if challenged:
        shell.turn(AuthChallenged(client.socket, 1, b"s1"))
        client.take()
    client.send(packet)
    assert client.take() == [Connack(False, R.PROTOCOL_ERROR)] and client.closed
    assert shell.asked[-1] == ForgetAuth(client.socket) and not shell.requests


def test_an_auth_that_nobody_asked_for_ends_the_connection() -> None:
    """Before the challenge, and a second one after it."""
    shell = Shell()
    for challenged in (False, True):
        client = asking(shell, properties=named())
        go_on = Auth(R.CONTINUE_AUTHENTICATION, named())
        if challenged:
            shell.turn(AuthChallenged(client.socket, 1, b"s1"))
            client.send(go_on)
            client.take()
        client.send(go_on)
        assert client.take() == [Connack(False, R.PROTOCOL_ERROR)] and client.closed


def test_a_method_that_is_not_known_is_refused_at_once() -> None:
    """0x8C, nobody is asked, and what comes behind is not looked at [MQTT-4.12.0-1]."""
    shell = Shell()
    client = shell.client()
    effects = client.send(Connect(5, "c", properties=Properties(authentication_method="OTHER")), Pingreq())
    why = "an authentication method that is not known"
    assert effects == [Write(client.socket, refusal(R.BAD_AUTHENTICATION_METHOD)), CloseSocket(client.socket, why)]


def test_a_client_may_give_up_while_it_authenticates() -> None:
    """DISCONNECT is allowed before CONNACK, and ends it without a word."""
    shell = Shell()
    client = asking(shell, properties=named())
    assert client.send(Disconnect()) == [CloseSocket(client.socket, "client disconnected"), ForgetAuth(client.socket)]


def test_a_client_that_does_not_answer_has_the_time_of_a_connect() -> None:
    """connect_wait_ms for each of its answers, then 0x87; the time of whoever is asked is another."""
    shell = Shell(Options(auth_wait_ms=1_000, connect_wait_ms=4_000))
    client = asking(shell, properties=named())
    shell.turn(AuthChallenged(client.socket, 1, b"s1"))
    client.take()
    shell.pass_time(3_900)
    assert client.closed is None
    shell.pass_time(1_000)
    assert client.take() == [Connack(False, R.NOT_AUTHORIZED)] and client.closed == "no AUTH in time"


def test_an_auth_before_connect_or_without_a_method_ends_the_connection() -> None:
    """The first closes without a word, as anything before CONNECT; the second is 0x82."""
    shell = Shell()
    client = shell.client()
    client._to_core.version = 5
    shell.turn(client.event(Auth(R.CONTINUE_AUTHENTICATION, named())))
    assert client.closed and client.take() == []
    other = shell.online("other")
    other.send(Auth(R.RE_AUTHENTICATE, named()))
    assert other.take() == [Disconnect(R.PROTOCOL_ERROR)] and other.closed


# ------------------------------------------------------------------ again, on a connection that is there
AGAIN = Auth(R.RE_AUTHENTICATE, named(authentication_data=b"c1"))
GO_ON = Auth(R.CONTINUE_AUTHENTICATION, named(authentication_data=b"c2"))


def again(shell: Shell) -> Client:
    """A client that authenticates again, and has answered the challenge."""
    client = online(shell)
    client.send(AGAIN)
    shell.turn(AuthChallenged(client.socket, 2, b"s1"))
    client.send(GO_ON)
    client.take()
    return client


def test_a_client_authenticates_again_while_its_traffic_goes_on() -> None:
    """A new attempt, without name and password of the CONNECT; AUTH 0x00 with the last word at its end, and what it is now counts."""
    shell = Shell()
    client = online(shell)
    client.take()
    login = replace(ASKED, method=METHOD, data=b"c1")
    assert client.send(AGAIN, Pingreq()) == [Write(client.socket, encode(5, Pingresp())), Authenticate(client.socket, 2, login)]
    shell.turn(AuthChallenged(client.socket, 2, b"s2"))
    client.send(message(b"a", b"x", 1, 7), GO_ON)
    shell.answer()
    assert client.take()[1] == Auth(R.CONTINUE_AUTHENTICATION, named(authentication_data=b"s2"))
    engineer = replace(SCRAM_ANN, groups=("engineers",))
    assert shell.turn(Authenticated(client.socket, 2, engineer, b"v=2"))[0] == Write(
        client.socket, encode(5, Auth(R.SUCCESS, named(authentication_data=b"v=2")))
    )
    assert shell.core._state.by_socket[client.socket].identity == engineer
    assert client.send(AGAIN)[0] == Authenticate(client.socket, 3, login), "and again"


@pytest.mark.parametrize(
    ("verdict", "code"),
    [
        (Authenticated(1, 2, Identity("bob", "scram"), b"v"), R.NOT_AUTHORIZED),
        (Authenticated(1, 2, ANONYMOUS), R.NOT_AUTHORIZED),
        (AuthRefused(1, 2, 0x86, "wrong"), R.NOT_AUTHORIZED),
        (AuthRefused(1, 2, 0x88, "late"), R.SERVER_BUSY),
        (AuthRefused(1, 2, 0x89, "full"), R.SERVER_BUSY),
    ],
)
def test_who_fails_to_authenticate_again_is_closed(verdict: Authenticated | AuthRefused, code: ReasonCode) -> None:
    """DISCONNECT with a code that it has [MQTT-4.12.1-2]; another user at the end fails too."""
    shell = Shell()
    client = again(shell)
    shell.turn(verdict)
    assert client.take() == [Disconnect(code)] and client.closed


@pytest.mark.parametrize("challenged", [False, True])
@pytest.mark.parametrize("packet", [AGAIN, Auth(R.RE_AUTHENTICATE, Properties(authentication_method="OTHER")), GO_ON])
def test_what_is_out_of_turn_closes_a_connection_that_authenticates_again(packet: Auth, challenged: bool) -> None:
    """A second beginning, another method, an answer that nobody asked for: 0x82."""
    shell = Shell()
    client = online(shell)
    client.send(AGAIN)
    if challenged:
        shell.turn(AuthChallenged(client.socket, 2, b"s1"))
        client.send(GO_ON)
    client.take()
    client.send(packet)
    assert client.take() == [Disconnect(R.PROTOCOL_ERROR)] and shell.asked[-1] == ForgetAuth(client.socket)


@pytest.mark.parametrize(("challenged", "code"), [(True, R.NOT_AUTHORIZED), (False, R.SERVER_BUSY)])
def test_both_sides_have_their_time_again(challenged: bool, code: ReasonCode) -> None:
    """A deadline of the first time means nothing for the second."""
    shell = Shell(Options(auth_wait_ms=3_000, connect_wait_ms=3_000))
    client = online(shell)
    shell.pass_time(2_000)
    client.send(AGAIN)
    if challenged:
        shell.turn(AuthChallenged(client.socket, 2, b"s1"))
    client.take()
    shell.pass_time(2_000)
    assert client.closed is None
    shell.pass_time(1_500)
    assert client.take() == [Disconnect(code)] and client.closed


def test_a_stop_waits_for_nobody_who_authenticates_again() -> None:
    """0x8B as for everybody, and the answer means nothing any more."""
    shell = Shell()
    client = again(shell)
    shell.turn(Stopping())
    assert client.take() == [Disconnect(R.SERVER_SHUTTING_DOWN)]
    assert shell.asked[-1] == ForgetAuth(client.socket) and shell.turn(Authenticated(client.socket, 2, SCRAM_ANN)) == []


# ------------------------------------------------------------------ ends
def test_the_connection_ends_with_what_it_came_in_with() -> None:
    """After ends_in_ms, with 0x87; one that counts for hours is looked at every minute only."""
    for ends_in_ms in (5_000, 3 * 60_000 + 500, 0):
        shell = Shell()
        client = asking(shell, username="ann")
        shell.turn(Authenticated(client.socket, 1, replace(ANN, how="jwt"), None, ends_in_ms))
        shell.answer()
        client.take()
        shell.pass_time(ends_in_ms - 500)
        assert client.closed is None
        shell.pass_time(1_500)
        assert client.take() == [Disconnect(R.NOT_AUTHORIZED)] and client.closed == "what it came in with has ended"


def test_an_end_that_comes_before_connack_refuses_it() -> None:
    """And one of a connection that is gone means nothing."""
    shell = Shell()
    client = asking(shell, username="ann")
    shell.turn(Authenticated(client.socket, 1, ANN, None, 1_000))
    shell.pass_time(2_000)
    assert client.take() == [Connack(False, R.NOT_AUTHORIZED)] and shell.core.connections == 0
    assert shell.pass_time(5_000) == []


@pytest.mark.parametrize(
    ("who", "serial", "closed"),
    [
        (Identity("ann", "password"), "", True),
        (Identity("ann", "scram"), "", True),
        (Identity("ann", "jwt"), "", False),
        (Identity("ann", "plugin"), "", False),
        (Identity("bob", "password"), "", False),
        (Identity("m7", "certificate"), "0AFF", True),
        (Identity("m7", "certificate"), "0B00", False),
        (Identity("bob", "password"), "0AFF", True),
    ],
)
@pytest.mark.parametrize("at_home", [False, True])
def test_who_is_revoked_is_closed(who: Identity, serial: str, closed: bool, at_home: bool) -> None:
    """By a password of the user, or with the certificate; also before its CONNACK.  Others of the same name came in another way."""
    shell = Shell()
    client = shell.client()
    shell.turn(Opened(101, "tls", "peer", serial=serial))
    shell.clients[101] = client
    client.socket = 101
    client.send(Connect(5, "c", username="x"))
    shell.turn(Authenticated(101, 1, who))
    if not at_home:
        shell.answer()
    client.take()
    shell.turn(IdentitiesRevoked(frozenset(("ann",)), frozenset(("0AFF",))))
    assert client.take() == ([Connack(False, R.NOT_AUTHORIZED) if at_home else Disconnect(R.NOT_AUTHORIZED)] if closed else [])
