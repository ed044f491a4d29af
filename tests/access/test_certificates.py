"""Names of certificates: each kind, none, two, and what is hidden in them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, derive_private_key
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from access.certificates import CERTIFICATE_BYTES_MAX, IDENTITIES, CertificateError, names_of

KEY = derive_private_key(7, SECP256R1())
WHEN = datetime(2026, 1, 1, tzinfo=UTC)


def certificate(*common_names: str, alternative: list[x509.GeneralName] | None = None, serial: int = 0xA1B, more: str = "") -> bytes:
    """Signed by itself: who signed it is the affair of TLS."""
    subject = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "plant")] + [cn(name) for name in common_names])
    builder = x509.CertificateBuilder(subject, subject, KEY.public_key(), serial, WHEN, WHEN.replace(year=2030))
    if alternative is not None:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternative), critical=False)
    if more:
        builder = builder.add_extension(x509.UnrecognizedExtension(x509.ObjectIdentifier(more), b"\x05\x00"), critical=False)
    return builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def cn(name: str) -> x509.NameAttribute[str]:
    return x509.NameAttribute(NameOID.COMMON_NAME, name, _validate=False)


EACH: list[x509.GeneralName] = [
    x509.DNSName("meter-7.plant"),
    x509.UniformResourceIdentifier("urn:meter:7"),
    x509.RFC822Name("meter-7@plant"),
    x509.RegisteredID(NameOID.COMMON_NAME),
]
USERS = {"cn": "Zähler 7", "san_dns": "meter-7.plant", "san_uri": "urn:meter:7", "san_email": "meter-7@plant"}


@pytest.mark.parametrize("which", IDENTITIES)
def test_the_name_that_is_asked_for_is_the_user(which: str) -> None:
    """Whatever else stands in the certificate; the serial number as openssl prints it."""
    assert names_of(certificate("Zähler 7", alternative=EACH), which) == (("user", USERS[which]), ("serial", "0A1B"))


@pytest.mark.parametrize(("serial", "wanted"), [(1, "01"), (0xFF, "FF"), (0x100, "0100"), ((1 << 159) - 1, "7F" + "FF" * 19)])
def test_a_serial_number_has_whole_bytes(serial: int, wanted: str) -> None:
    """So that rules can name it as other programs show it."""
    assert names_of(certificate("ann", serial=serial), "cn")[1] == ("serial", wanted)


@pytest.mark.parametrize("which", IDENTITIES)
def test_no_such_name_is_nobody(which: str) -> None:
    """Another name of the certificate does not stand in for it."""
    others = [name for name, word in zip(EACH, [*list(IDENTITIES)[1:], ""], strict=True) if word != which]
    common_names = [] if which == "cn" else ["ann"]
    with pytest.raises(CertificateError, match=f"0 names of the kind {which}"):
        names_of(certificate(*common_names, alternative=others), which)
    if which != "cn":
        with pytest.raises(CertificateError, match=f"0 names of the kind {which}"):
            names_of(certificate("ann"), which)


@pytest.mark.parametrize("which", IDENTITIES)
def test_two_names_are_nobody(which: str) -> None:
    """Also when they are the same: who reads the other one next time is somebody else."""
    twice = certificate("ann", "bob", alternative=[*EACH, *EACH])
    with pytest.raises(CertificateError, match=f"2 names of the kind {which}"):
        names_of(twice, which)


@pytest.mark.parametrize(
    ("name", "story"),
    [
        ("ann\x00.evil", r"the name cn of the certificate has the control character U\+0000 at place 4"),
        ("ann\n", "control character"),
        ("x" * 257, "has 257 bytes"),
        ("", "has 0 bytes"),
    ],
)
@pytest.mark.filterwarnings("ignore:Attribute's length must be:UserWarning")
def test_names_that_are_no_user_names_are_refused(name: str, story: str) -> None:
    """As from everywhere else; nothing is cut at a zero."""
    with pytest.raises(CertificateError, match=story):
        names_of(certificate(name), "cn")


# What cryptography reads today with a warning it will refuse one day; either is right here.
@pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")
@pytest.mark.filterwarnings("ignore:Attribute's length must be:UserWarning")
@given(st.integers(0), st.integers(1, 255))
def test_a_damaged_certificate_is_refused_or_read(where: int, flipped: int) -> None:
    """Never another error; TLS has looked at it before, and we do not rely on that."""
    der = bytearray(WHOLE)
    der[where % len(der)] ^= flipped
    for which in IDENTITIES:
        try:
            assert names_of(bytes(der), which)[0][0] == "user"
        except CertificateError:
            continue


WHOLE = certificate("ann", alternative=EACH)


@pytest.mark.parametrize("der", [b"", b"\x30\x00", WHOLE[:-1], WHOLE + b"\x00", b"\xff" * 100])
def test_what_is_no_certificate_is_refused(der: bytes) -> None:
    """In one sentence."""
    with pytest.raises(CertificateError, match=r"^a certificate that cannot be read$"):
        names_of(der, "cn")


def patched(der: bytes, before: str, after: str) -> bytes:
    """One place of it, which is there, written anew."""
    assert der.count(bytes.fromhex(before)) == 1
    return der.replace(bytes.fromhex(before), bytes.fromhex(after))


@pytest.mark.parametrize(
    "der",
    [
        pytest.param(patched(WHOLE, "a003020102", "a003020105"), id="a version that is not there"),
        pytest.param(patched(certificate(alternative=EACH[3:]), "8803550403", "a503550403"), id="a kind of name that is not there"),
        pytest.param(patched(certificate(alternative=EACH[:1], more="1.2.3.4"), "06032a0304", "0603551d11"), id="two lists of names"),
    ],
)
@pytest.mark.parametrize("which", ["san_dns", "san_uri"])
def test_what_is_in_no_certificate_makes_it_unreadable(der: bytes, which: str) -> None:
    """A list of names of which a part is not understood has no name for us."""
    with pytest.raises(CertificateError, match="cannot be read"):
        names_of(der, which)


def test_a_certificate_has_a_largest_size() -> None:
    """It is looked at on the loop that serves clients."""
    with pytest.raises(CertificateError, match="at most 65536"):
        names_of(b"\x30" * (CERTIFICATE_BYTES_MAX + 1), "cn")
