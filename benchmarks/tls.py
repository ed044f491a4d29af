"""A socket of the load generator that speaks TLS, behind the same few calls as a plain one, and the certificate that a broker shows it.

Holds: what `recv` gives is all that was decrypted, so that nothing waits in here while the socket has nothing more to read: a record is
only opened where all of it finds room, and the others wait in the kernel, of which epoll tells.
"""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

RECORD_BYTES_MAX: Final = 1 << 14
"""What one record of TLS can hold of payload."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A certificate for 127.0.0.1 that has signed itself, and its key, as PEM files. Clients trust the certificate itself."""

    cert: str
    key: str


def issue(directory: Path) -> Shown:
    """A new one, good for a week."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=7))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    directory.mkdir(parents=True, exist_ok=True)
    cert_path, key_path = directory / "tls.pem", directory / "tls.key"
    cert_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_path.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return Shown(str(cert_path), str(key_path))


@cache
def _trusting(ca: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca)


class TlsSocket:
    """What the generator uses of a socket, on one that blocks until `setblocking`."""

    def __init__(self, sock: socket.socket, host: str, ca: str) -> None:
        """Does the handshake; raises ssl.SSLError, an OSError, for a broker that is not the one of the certificate."""
        self._sock = _trusting(ca).wrap_socket(sock, server_hostname=host)

    def fileno(self) -> int:
        return self._sock.fileno()

    def setblocking(self, wanted: bool) -> None:
        self._sock.setblocking(wanted)

    def sendall(self, data: bytes) -> None:
        self._sock.sendall(data)

    def send(self, data: bytes | memoryview) -> int:
        """How much was taken; after BlockingIOError the same has to be given again."""
        try:
            return self._sock.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            raise BlockingIOError from error

    def recv(self, size: int) -> bytes:
        """At most `size` bytes, of one record; none: it is over."""
        try:
            return self._sock.recv(size)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            raise BlockingIOError from error

    def recv_into(self, view: memoryview) -> int:
        """As many whole records as there are and find room, but always one."""
        taken = 0
        while not taken or len(view) - taken >= RECORD_BYTES_MAX:
            try:
                more = self._sock.recv_into(view[taken:])
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
                if taken:
                    break
                raise BlockingIOError from error
            if not more:
                break
            taken += more
        return taken

    def shutdown(self, how: int) -> None:
        self._sock.shutdown(how)

    def close(self) -> None:
        self._sock.close()
