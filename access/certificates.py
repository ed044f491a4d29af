"""The one name of a certificate (X.509) that a listener takes for the user's, and its serial number.

TLS has checked the chain, the times and the list of revoked ones before.  What always holds: no such name, or two of them, is nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from cryptography import x509
from cryptography.x509.oid import NameOID

from access.identity import check_name

CERTIFICATE_BYTES_MAX: Final = 65_536


class CertificateError(ValueError):
    """A certificate that says nobody's name."""


def names_of(der: bytes, which: str) -> tuple[tuple[str, str], ...]:
    """The user and the serial number, which is written as openssl writes it.  which: a word of IDENTITIES.  Raises CertificateError."""
    if len(der) > CERTIFICATE_BYTES_MAX:
        raise CertificateError(f"a certificate of {len(der)} bytes, at most {CERTIFICATE_BYTES_MAX} are allowed")
    try:
        certificate = x509.load_der_x509_certificate(der)
        found = IDENTITIES[which](certificate)
        serial = certificate.serial_number
    except (ValueError, TypeError, x509.DuplicateExtension, x509.InvalidVersion, x509.UnsupportedGeneralNameType):
        raise CertificateError("a certificate that cannot be read") from None
    if len(found) != 1:
        raise CertificateError(f"{len(found)} names of the kind {which} in the certificate, one is wanted")
    try:
        user = check_name(found[0], f"the name {which} of the certificate")
    except ValueError as error:
        raise CertificateError(str(error)) from None
    return ("user", user), ("serial", serial_text(serial))


def serial_of(der: bytes) -> str:
    """The serial number alone, of whomever the certificate is.  Raises CertificateError."""
    try:
        return serial_text(x509.load_der_x509_certificate(der).serial_number)
    except (ValueError, TypeError, x509.InvalidVersion):
        raise CertificateError("a certificate that cannot be read") from None


def _common_names(certificate: x509.Certificate) -> list[str]:
    found = [attribute.value for attribute in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    return [value if isinstance(value, str) else value.decode() for value in found]


def _alternative(
    kind: type[x509.DNSName] | type[x509.UniformResourceIdentifier] | type[x509.RFC822Name],
) -> Callable[[x509.Certificate], list[str]]:
    def names(certificate: x509.Certificate) -> list[str]:
        try:
            extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        except x509.ExtensionNotFound:
            return []
        return [str(value) for value in extension.value.get_values_for_type(kind)]

    return names


def serial_text(serial: int) -> str:
    """Hexadecimal, as openssl writes it."""
    digits = f"{abs(serial):X}"
    return ("-" if serial < 0 else "") + digits.zfill(len(digits) + len(digits) % 2)


IDENTITIES: Final[Mapping[str, Callable[[x509.Certificate], list[str]]]] = {
    "cn": _common_names,
    "san_dns": _alternative(x509.DNSName),
    "san_uri": _alternative(x509.UniformResourceIdentifier),
    "san_email": _alternative(x509.RFC822Name),
}
"""The words of a listener's `identity`, and which names each takes."""
