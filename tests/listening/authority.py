"""A certificate authority of its own: certificates for brokers and clients, and lists of revoked ones, as PEM files."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


@dataclass
class Issued:
    cert: str
    key: str
    serial: int


@dataclass
class Authority:
    directory: Path
    name: str = "test authority"
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        builder = self._builder(self.name, self.key.public_key(), 3650)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        builder = builder.add_extension(usage, critical=True)
        self.ca = self._write("ca.pem", builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(self, common: str, *, days: int = 30, dns: tuple[str, ...] = (), password: bytes = b"", file: str = "") -> Issued:
        """For a broker on this machine, or a client of this name.  days below 0: expired.  file: their name, else the common one."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(common, key.public_key(), days)
        names: list[x509.GeneralName] = [x509.DNSName(each) for each in (dns or ("localhost",))]
        names.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self.key, hashes.SHA256())
        how = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
        pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how)
        file = file or common
        return Issued(
            self._write(f"{file}.pem", certificate.public_bytes(serialization.Encoding.PEM)),
            self._write(f"{file}.key", pem),
            certificate.serial_number,
        )

    def revoke(self, *serials: int, days: float = 1) -> str:
        """A new list of all that are revoked; days: until the next is due, below 0: it was."""
        builder = x509.CertificateRevocationListBuilder().issuer_name(_name(self.name))
        builder = builder.last_update(NOW - 10 * DAY).next_update(NOW + days * DAY)
        for serial in serials:
            revoked = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(NOW - DAY).build()
            builder = builder.add_revoked_certificate(revoked)
        return self._write("revoked.pem", builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def _builder(self, common: str, key: ec.EllipticCurvePublicKey, days: int) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(_name(common))
            .issuer_name(_name(self.name))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW - 100 * DAY)
            .not_valid_after(NOW + days * DAY)
        )

    def _write(self, name: str, data: bytes) -> str:
        path = self.directory / name
        beside = path.with_suffix(".part")
        beside.write_bytes(data)
        beside.replace(path)
        return str(path)
