"""Password entries, written by ourselves, by mosquitto_passwd, by amqtt's libraries, and by people who make mistakes."""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from amqtt.plugins.authentication import FileAuthPlugin
from argon2.low_level import Type, hash_secret
from hypothesis import given
from hypothesis import strategies as st
from pwdlib import PasswordHash
from pwdlib.hashers.argon2 import Argon2Hasher

from access import passwords
from access.passwords import Cost, EntryError, PasswordFileError, Users, argon2id_entry, cost, read_password_file, verify
from access.scram import scram_entry
from access.sha512_crypt import sha512_crypt
from tests.needs import find_program

SALT = bytes(range(16))
SECRETS = [b"secret", "Zoë €".encode(), b" a:b$c ", b"x" * 300, b"\xff\x00\x80", b""]


def argon2(password: bytes = b"secret", *, memory: int = 8, passes: int = 1, lanes: int = 1, kind: Type = Type.ID, size: int = 32) -> str:
    """An entry that costs next to nothing."""
    return hash_secret(password, SALT, passes, memory, lanes, size, kind).decode()


def pbkdf2(password: bytes = b"secret", iterations: int = 101) -> str:
    digest = hashlib.pbkdf2_hmac("sha512", password, SALT, iterations)
    return f"$7${iterations}${b64encode(SALT).decode()}${b64encode(digest).decode()}"


def salted(password: bytes = b"secret") -> str:
    return f"$6${b64encode(SALT).decode()}${b64encode(hashlib.sha512(password + SALT).digest()).decode()}"


def crypted(password: bytes = b"secret", rounds: int = 1_000) -> str:
    """5,000 rounds are not written down."""
    return f"$6${'' if rounds == 5_000 else f'rounds={rounds}$'}saltstring${sha512_crypt(password, b'saltstring', rounds)}"


MAKERS: dict[str, Callable[[bytes], str]] = {"argon2": argon2, "pbkdf2": pbkdf2, "salted": salted, "crypt": crypted}


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("secret", SECRETS)
def test_the_password_fits_and_others_do_not(maker: str, secret: bytes) -> None:
    """In each form, byte by byte: nothing is trimmed, folded or cut at a zero.  HMAC's keys have no zeros at their end."""
    entry = MAKERS[maker](secret)
    assert verify(entry, secret)
    zero = [] if maker == "pbkdf2" else [secret + b"\x00"]
    for other in (secret + b" ", secret + b"\x00a", secret[:-1] if secret else b"x", secret.swapcase() + b"a", *zero):
        assert not verify(entry, other)


def test_our_entries_cost_what_the_page_says() -> None:
    """19 MiB, 2 passes and 1 lane, in the form that everybody reads."""
    entry = argon2id_entry(b"secret", SALT)
    assert entry.startswith("$argon2id$v=19$m=19456,t=2,p=1$AAECAwQFBgcICQoLDA0ODw$")
    assert verify(entry, b"secret") and not verify(entry, b"Secret")
    assert read_password_file(f"ann:{entry}".encode()).passwords == {"ann": entry}


def test_two_entries_of_one_password_differ() -> None:
    """By their salt."""
    assert argon2id_entry(b"secret", SALT) != argon2id_entry(b"secret", SALT[::-1])


@pytest.mark.needs("mosquitto")
@pytest.mark.parametrize("form", ["sha512", "sha512-pbkdf2"])
def test_files_of_mosquitto_passwd_are_read(form: str, tmp_path: Path) -> None:
    """What the program of mosquitto writes, with users and passwords of all kinds, and a comment that somebody added."""
    program, file = find_program("mosquitto_passwd"), tmp_path / "passwords"
    assert program is not None
    written = {"ann": "secret", "Zoë": "pass wörd", "a b": "$7$101$", "meter-7": "x" * 100}
    for number, (name, password) in enumerate(written.items()):
        command = [program, "-b", "-H", form, *(["-c"] if number == 0 else []), str(file), name, password]
        subprocess.run(command, check=True, capture_output=True)
    users = read_password_file(b"# made by mosquitto_passwd\n\n" + file.read_bytes())
    assert users.passwords.keys() == written.keys()
    for name, password in written.items():
        assert users.passwords[name].startswith("$6$" if form == "sha512" else "$7$")
        assert verify(users.passwords[name], password.encode()) and not verify(users.passwords[name], password.encode() + b"x")
        assert cost(users.passwords[name]) is Cost.CHEAP


class _Log:
    """Where amqtt's plugin writes."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def amqtt_says(file: Path, user: str, password: str) -> bool:
    """amqtt's own plugin on the same file."""
    context = SimpleNamespace(config=FileAuthPlugin.Config(password_file=file), logger=_Log())
    session = SimpleNamespace(username=user, password=password)
    plugin = FileAuthPlugin(context)
    plugin.context = context
    return bool(asyncio.run(plugin.authenticate(session=session)))


@pytest.mark.filterwarnings("ignore:`sha512` password hashes are deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:Authenticating with legacy:DeprecationWarning")
def test_amqtt_and_we_say_the_same_of_one_file(tmp_path: Path) -> None:
    """Entries of pwdlib and of crypt, as amqtt reads them; pwdlib with little memory, which is another number in the same form."""
    hasher = PasswordHash((Argon2Hasher(time_cost=1, memory_cost=64, parallelism=4),))
    file = tmp_path / "passwords"
    file.write_text(f"# amqtt\nann:{hasher.hash('secret')}\n\nbob:{crypted(rounds=5_000)}\ncid:{crypted(rounds=1_000)}\n")
    users = read_password_file(file.read_bytes())
    for user, entry in users.passwords.items():
        for password in ("secret", "Secret", ""):
            assert verify(entry, password.encode()) == amqtt_says(file, user, password) == (password == "secret")


@pytest.mark.slow
def test_an_entry_of_amqtts_own_cost_is_taken() -> None:
    """64 MiB, 3 passes and 4 lanes are what pwdlib takes when nobody says anything."""
    entry = PasswordHash((Argon2Hasher(),)).hash("secret")
    assert entry.startswith("$argon2id$v=19$m=65536,t=3,p=4$")
    assert verify(read_password_file(f"ann:{entry}".encode()).passwords["ann"], b"secret")


def test_argon2i_is_read_too() -> None:
    """Older files have it."""
    entry = argon2(kind=Type.I)
    assert entry.startswith("$argon2i$") and verify(entry, b"secret") and not verify(entry, b"x")


@pytest.mark.parametrize(
    ("entry", "wanted"),
    [
        (argon2(), Cost.DEAR),
        (crypted(), Cost.DEAR),
        (salted(), Cost.CHEAP),
        (pbkdf2(), Cost.CHEAP),
        (pbkdf2(iterations=2_000), Cost.CHEAP),
        (pbkdf2(iterations=2_001), Cost.DEAR),
    ],
)
def test_what_takes_more_than_a_millisecond_is_dear(entry: str, wanted: Cost) -> None:
    """So that it is known before it is checked where that has to happen."""
    assert cost(entry) is wanted


def test_a_password_too_long_for_crypt_costs_nothing() -> None:
    """The work of crypt grows with the square of the length; a CONNECT may carry 65,535 bytes."""
    longest = b"x" * 511
    assert verify(crypted(longest), longest)
    assert not verify(crypted(b"x" * 512), b"x" * 512)
    assert not verify(crypted(), b"x" * 65_535)


ARGON2_PARTS = argon2().split("$")


def argon2_with(parameters: str, salt: str | None = None, digest: str | None = None, version: str = "v=19", kind: str = "argon2id") -> str:
    return "$".join(["", kind, version, parameters, salt or ARGON2_PARTS[4], digest or ARGON2_PARTS[5]])


@pytest.mark.parametrize(
    ("entry", "story"),
    [
        (argon2_with("m=262145,t=1,p=1"), "262145 KiB of memory of argon2, 8 to 262144"),
        (argon2_with("m=4194304,t=1,p=1"), "4194304 KiB"),
        (argon2_with("m=99999999999999999999,t=1,p=1"), "KiB of memory"),
        (argon2_with("m=8,t=1,p=2"), "8 KiB of memory of argon2, 16 to"),
        (argon2_with("m=0,t=1,p=1"), "KiB of memory"),
        (argon2_with("m=08,t=1,p=1"), "08 KiB of memory"),
        (argon2_with("m=8,t=11,p=1"), "11 passes of argon2, 1 to 10"),
        (argon2_with("m=8,t=0,p=1"), "0 passes"),
        (argon2_with("m=1024,t=1,p=17"), "17 lanes of argon2, 1 to 16"),
        (argon2_with("m=1024,t=1,p=0"), "0 lanes"),
        (argon2_with("m=8,t=1,p=1", salt="AAAAAAAAA"), "no base64"),
        (argon2_with("m=8,t=1,p=1", salt=ARGON2_PARTS[4][:-1] + "x"), "a salt that is no base64"),
        (argon2_with("m=8,t=1,p=1", digest=ARGON2_PARTS[5][:-1] + "B"), "a hash that is no base64"),
        (argon2_with("m=8,t=1,p=1", salt="AAAA"), "a salt of argon2 with 3 bytes, 8 to 64"),
        (argon2_with("m=8,t=1,p=1", digest="AAAA"), "a hash of argon2 with 3 bytes, 16 to 64"),
        (argon2_with("m=8,t=1,p=1", digest="A" * 88), "a hash of argon2 with 66 bytes"),
        (argon2_with("m=8,t=1,p=1", version="v=16"), "no known form"),
        (argon2_with("m=8,t=1,p=1", kind="argon2d"), "no known form"),
        (argon2_with("m=8,p=1,t=1"), "no known form"),
        (argon2_with("m=٨,t=1,p=1"), "no known form"),
        (argon2_with("m=8,t=1,p=1,keyid=AA"), "no known form"),
        (pbkdf2().replace("$101$", "$1000001$"), "1000001 iterations of \\$7\\$, 1 to 1000000"),
        (pbkdf2().replace("$101$", "$0$"), "0 iterations"),
        (pbkdf2().replace("$101$", "$0101$"), "0101 iterations"),
        (pbkdf2()[:-1], "no known form"),
        ("$7$101$AAA$" + "A" * 86 + "==", "a salt that is no base64"),
        ("$7$101$AAAA$" + "A" * 88, "a hash of 66 bytes, 64 are wanted"),
        ("$6$AAAA$" + "=" * 88, "a hash that is no base64|a hash of 0 bytes"),
        (crypted().replace("rounds=1000", "rounds=999"), "999 rounds of \\$6\\$, 1000 to 1000000"),
        (crypted().replace("rounds=1000", "rounds=1000001"), "1000001 rounds"),
        (crypted()[:-1], "no known form"),
        (crypted().replace("saltstring", "saltstringsaltstr"), "no known form"),
        ("$5$" + crypted()[3:], "no known form"),
        ("$2b$12$" + "a" * 53, "no known form"),
        ("$1$abc$def", "no known form"),
        ("*", "no known form"),
        ("", "no known form"),
        ("$7$" + "1" * 600, "an entry of 603 characters, at most 512"),
    ],
)
def test_entries_that_are_not_taken(entry: str, story: str) -> None:
    """Neither in a file nor by a check: what they would cost is known before any of it is spent."""
    with pytest.raises(EntryError, match=story):
        verify(entry, b"secret")
    with pytest.raises(EntryError):
        cost(entry)
    with pytest.raises(PasswordFileError):
        read_password_file(b"bob:" + argon2().encode() + b"\nann:" + entry.encode())


@pytest.mark.parametrize("maker", MAKERS)
def test_nothing_stands_behind_an_entry(maker: str) -> None:
    """A line that was not trimmed is not half read."""
    for behind in ("\n", " ", "\x00", "$", ":"):
        with pytest.raises(EntryError):
            verify(MAKERS[maker](b"secret") + behind, b"secret")


def test_the_dearest_entries_that_are_allowed_are_taken() -> None:
    """The bounds are part of what is allowed."""
    for entry in (
        argon2_with("m=262144,t=10,p=16"),
        pbkdf2().replace("$101$", "$1000000$"),
        crypted().replace("=1000$", "=1000000$"),
    ):
        assert cost(entry) is Cost.DEAR


def test_a_file_as_people_keep_it() -> None:
    """Comments, blank lines, blanks at both ends, lines of Windows, a mark of byte order; one user with both kinds of entry."""
    scram = scram_entry("secret", SALT)
    lines = ["\ufeff# users", "", f"  ann : {argon2()} ", f"\tbob:{salted()}\r", f"ann:{scram.text()}", "#ann:x", " # x", f"é:{pbkdf2()}"]
    assert read_password_file("\r\n".join(lines).encode()) == Users(
        {"ann": argon2(), "bob": salted(), "é": pbkdf2()}, {"ann": scram}, read_password_file(f"a:{argon2()}".encode()).absent
    )


@pytest.mark.parametrize("data", [b"", b"\n\n", b"# nobody yet\n"])
def test_a_file_may_have_nobody(data: bytes) -> None:
    """Then nobody comes in, and nobody can be told from others."""
    assert read_password_file(data) == Users({}, {}, None)


@pytest.mark.parametrize(
    ("line", "story"),
    [
        ("ann:hunter2", "line 3: an entry of no known form"),
        ("hunter2", "line 3: no ':' found"),
        ("ann:", "line 3: an entry of no known form"),
        (f":{salted()}", "line 3: the user name has 0 bytes"),
        (f"{'hunter2' * 40}:{salted()}", "line 3: the user name has 280 bytes"),
        (f"hunter2\x00:{salted()}", "line 3: the user name has the control character"),
        (f"hunter2\x1b[2J:{salted()}", "line 3: the user name has the control character"),
        (f"bob:{argon2(b'hunter2')}", "line 3: a second entry for passwords of the user of line 1"),
        (f"cid:{scram_entry('hunter2', SALT).text()}", "line 3: a second entry for SCRAM of the user of line 2"),
        ("ann:$scram-sha-256$1$hunter2", "line 3: an entry for SCRAM of another form"),
        (f"ann:{salted()}:hunter2", "line 3: an entry of no known form"),
        (f"ann:{salted()} hunter2", "line 3: an entry of no known form"),
        ("hunter2:\udcff", "line 3: not UTF-8"),
    ],
)
def test_one_bad_line_refuses_the_file_and_is_not_repeated(line: str, story: str) -> None:
    """With its number: what stands in it may be a password."""
    file = f"bob:{argon2()}\ncid:{scram_entry('secret', SALT).text()}\n{line}\ndan:{argon2()}\n"
    with pytest.raises(PasswordFileError, match=f"^{story}") as found:
        read_password_file(file.encode(errors="surrogateescape"))
    assert "hunter2" not in str(found.value) and "bob" not in str(found.value)


def test_a_file_has_a_largest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """In entries and in bytes."""
    monkeypatch.setattr(passwords, "ENTRIES_MAX", 2)
    three = "".join([f"u{number}:{salted()}\n" for number in range(3)]).encode()
    assert len(read_password_file(three[: three.rindex(b"u2")]).passwords) == 2
    with pytest.raises(PasswordFileError, match="line 3: more than 2 entries"):
        read_password_file(three)
    monkeypatch.setattr(passwords, "FILE_BYTES_MAX", 100)
    with pytest.raises(PasswordFileError, match="at most 100 are allowed"):
        read_password_file(b"#" * 101)


@pytest.mark.parametrize("maker", MAKERS)
def test_who_is_not_there_costs_what_most_entries_cost(maker: str) -> None:
    """The same form with the same parameters, and no password fits it."""
    entry = MAKERS[maker](b"secret")
    lines = [f"other:{salted() if maker != 'salted' else pbkdf2()}"] + [f"u{number}:{entry}" for number in range(2)]
    absent = read_password_file("\n".join(lines).encode()).absent
    assert absent is not None and len(absent) == len(entry)
    assert absent.rsplit("$", 1)[0] == entry.rsplit("$", 1)[0]
    assert cost(absent) is cost(entry)
    assert not any(verify(absent, secret) for secret in SECRETS)


@given(st.binary(max_size=200), st.integers(0, 3), st.integers(0, 400))
def test_no_other_error_comes_of_a_file(noise: bytes, which: int, where: int) -> None:
    """Whatever is put into an entry that was right."""
    line = b"ann:" + list(MAKERS.values())[which](b"secret").encode()
    try:
        users = read_password_file(line[:where] + noise + line[where:])
    except PasswordFileError:
        return
    for entry in users.passwords.values():
        if "$m=8,t=1,p=1$" in entry or cost(entry) is Cost.CHEAP:
            assert verify(entry, b"secret") or noise
