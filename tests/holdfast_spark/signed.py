"""Certificates for tests of TLS: an authority, and what it has signed for some names."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

Key = ec.EllipticCurvePrivateKey


class Signed:
    """An authority, a certificate that it has signed, and its key, as files."""

    def __init__(self, directory: Path, names: Sequence[x509.GeneralName]) -> None:
        authority, own = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
        self.authority = _pem(_certificate("authority", authority, "authority", authority, None))
        self.own = _pem(_certificate("reader", own, "authority", authority, names))
        self.files = directory / "cert.pem", directory / "key.pem"
        self.files[0].write_text(self.own)
        self.files[1].write_bytes(
            own.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        )

    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.files)
        return context


def _certificate(name: str, key: Key, issuer: str, issuers: Key, names: Sequence[x509.GeneralName] | None) -> x509.Certificate:
    """names None: of an authority."""
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=names is None, path_length=None), critical=True)
    )
    if names is not None:
        made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return made.sign(issuers, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
