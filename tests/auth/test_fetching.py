"""A set of keys over real TLS: taken from whom the certificate names, in bounds, and from nowhere else."""

from __future__ import annotations

import datetime
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from access.jwks import SET_BYTES_MAX
from actors.auth.keys import fetch

pytestmark = pytest.mark.slow
SET = b'{"keys": []}'


class Issuer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        match self.path:
            case "/set":
                self._say(200, SET)
            case "/moved":
                self._say(302, b"", "/set")
            case "/elsewhere":
                self._say(302, b"", "https://issuer.example/set")
            case "/plain":
                self._say(302, b"", "http://127.0.0.1/set")
            case "/large":
                self._say(200, b"x" * (SET_BYTES_MAX + 100_000))
            case _:
                self._say(404, b"nothing")

    def _say(self, code: int, body: bytes, location: str = "") -> None:
        self.send_response(code)
        if location:
            self.send_header("Location", location)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            pass  # Whoever has read enough goes.

    def log_message(self, format: str, *args: object) -> None: ...


def certificate(directory: Path, name: str) -> tuple[Path, Path]:
    """Signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "issuer")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(name))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = directory / "cert.pem", directory / "key.pem"
    cert_file.write_bytes(made.public_bytes(Encoding.PEM))
    key_file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return cert_file, key_file


def serving(directory: Path, name: str) -> Iterator[tuple[str, Path]]:
    cert_file, key_file = certificate(directory, name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert_file, key_file)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Issuer)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"https://127.0.0.1:{server.server_port}", cert_file
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def issuer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Its address; its certificate is trusted."""
    for address, trusted in serving(tmp_path, "127.0.0.1"):
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        # Not for us: what an environment says of proxies is no setting.
        monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
        yield address


def test_a_set_is_fetched_from_there_and_from_where_it_moved_there(issuer: str) -> None:
    """Within one host."""
    assert fetch(f"{issuer}/set") == SET and fetch(f"{issuer}/moved") == SET


@pytest.mark.parametrize(("path", "why"), [("elsewhere", "another host"), ("plain", "another host"), ("nowhere", "404")])
def test_what_is_not_there_is_an_error(issuer: str, path: str, why: str) -> None:
    """So is another host, and the same without TLS."""
    with pytest.raises(OSError, match=why):
        fetch(f"{issuer}/{path}")


def test_no_more_is_read_than_a_set_may_have(issuer: str) -> None:
    """And a part more, by which it is seen to be too large."""
    assert SET_BYTES_MAX < len(fetch(f"{issuer}/large")) <= SET_BYTES_MAX + (64 << 10)


def test_who_shows_another_name_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor who is not trusted at all."""
    for address, trusted in serving(tmp_path, "127.0.0.2"):
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            fetch(f"{address}/set")
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            fetch(f"{address}/set")
