"""Settings of the kinds of targets that are elsewhere: brokers, HTTP servers, databases, and Parquet files (docs/bridge.md).

Only declares; the connections are `bridge.targets`.  `wanting` says what a bridge of that kind still needs.
"""

from __future__ import annotations

import json
import re
from typing import Final, Literal
from urllib.parse import urlsplit

from config.fields import Flag, Section, Whole, setting
from config.secrets import SECRET_ALLOWED, Secret
from config.values import Duration, Size

BROKER_ALLOWED: Final = '"mqtt://host:port", or with TLS "mqtts://host:port"'
URL_ALLOWED: Final = '"https://host/path" or "http://host/path", without a user in it'
TABLE_ALLOWED: Final = 'a name such as "messages" or "plant.messages"'
_HEADERS_ALLOWED = """a JSON object of texts, such as '{"X-Tenant": "7"}'"""
_COLUMNS_ALLOWED = """a JSON object of JMESPath expressions, such as '{"temperature": "payload.temperature"}'"""
_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?")
_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
IDENTITY: Final = ("store", "shard", "position")
"""The columns by which a row is the message, for ever."""
SESSION_EXPIRY_MAX_MS: Final = 0xFFFF_FFFE * 1000
_CA_WHY = (
    "Path of the certificates (PEM) that have to have signed those of the other side; relative to the data directory. Empty: those of the "
    "system."
)
_CERT_WHY = "Path of the certificate chain (PEM) that is shown to it. Empty: none."
_KEY_WHY = "Path of the key of that certificate (PEM)."
_PATH = "a path or nothing"


def _objects(text: str) -> dict[str, str] | None:
    """The JSON object of texts that this is, or None."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    sound = isinstance(found, dict) and all(isinstance(value, str) for value in found.values())
    return found if sound else None


class Mqtt(Section):
    url: str = setting(
        "", "The broker that messages are published to; with direction in, brought from.", allowed=BROKER_ALLOWED, effect="at once"
    )
    version: Literal["5", "3.1.1"] = setting(
        "5", "The version of MQTT that is spoken. Only 5 has properties, reasons, and marks that end loops by themselves.", effect="at once"
    )
    client_id: str = setting(
        "",
        "The client id there, to which the number of the connection is added. Empty: made of the store and the bridge's name.",
        pattern=r"^[^\x00]{0,200}$",
        allowed="up to 200 characters",
        effect="at once",
    )
    user: str = setting("", "The user name there. Empty: none.", effect="at once")
    password: Secret = setting(Secret(""), "Where that user's password lies.", allowed=SECRET_ALLOWED, effect="at once")
    keep_alive: Duration = setting(
        Duration.parse("60s"), "How often the broker hears from us at least.", ge=5_000, le=3_600_000, effect="at once"
    )
    window: Whole = setting(
        1000,
        "Messages that are under way without an acknowledgement. The broker's own receive maximum bounds it as well.",
        unit="messages",
        ge=1,
        le=10_000,
        effect="at once",
    )
    packet_bytes_max: Size = setting(
        Size.parse("16MiB"),
        "The largest packet that is sent; what is larger is refused for good. What a broker of version 5 says of itself bounds it as well. "
        "With direction in such a broker is told to send none that is larger.",
        ge=1024,
        le=268_435_455,
        effect="at once",
    )
    retain: Flag = setting(True, "Publish as retained what was.", effect="at once")
    qos: Whole = setting(
        2,
        "The highest QoS at which messages are brought in, with direction in. 2: those that were published at QoS 2 come once, the others "
        "as with 1.",
        ge=1,
        le=2,
        effect="at once",
    )
    session_expiry: Duration = setting(
        Duration.parse("7d"),
        "How long the other broker keeps our session, and what comes for it, while we are not connected; with direction in and version 5. "
        "With 3.1.1 that broker alone decides.",
        ge=60_000,
        le=SESSION_EXPIRY_MAX_MS,
        effect="at once",
    )
    ca: str = setting("", _CA_WHY, allowed=_PATH, effect="at once")
    cert: str = setting("", _CERT_WHY, allowed=_PATH, effect="at once")
    key: str = setting("", _KEY_WHY, allowed=_PATH, effect="at once")

    def wanting(self) -> tuple[str, str] | None:
        if broker_address(self.url) is None:
            return "url", BROKER_ALLOWED
        return _certificate(self.cert, self.key)


class Http(Section):
    url: str = setting("", "Where requests go.", allowed=URL_ALLOWED, effect="at once")
    method: Literal["POST", "PUT"] = setting("POST", "How.", effect="at once")
    body: Literal["payload", "message", "batch"] = setting(
        "payload",
        "payload: a request for each message, with its payload, and what else it has in headers. message: a request for each message, a "
        "JSON object. batch: a request for a batch, a JSON array of such objects.",
        effect="at once",
    )
    headers: str = setting("{}", "Headers of every request.", allowed=_HEADERS_ALLOWED, effect="at once")
    authorization: Secret = setting(
        Secret(""), "Where the value of the header Authorization lies, such as `Bearer ...`.", allowed=SECRET_ALLOWED, effect="at once"
    )
    connections: Whole = setting(
        8,
        "Requests at the same time, where each has one message. Messages of one key follow each other.",
        unit="requests",
        ge=1,
        le=256,
        effect="at once",
    )
    timeout: Duration = setting(Duration.parse("30s"), "How long an answer may take.", ge=100, le=600_000, effect="at once")
    ca: str = setting("", _CA_WHY, allowed=_PATH, effect="at once")
    cert: str = setting("", _CERT_WHY, allowed=_PATH, effect="at once")
    key: str = setting("", _KEY_WHY, allowed=_PATH, effect="at once")

    def wanting(self) -> tuple[str, str] | None:
        if not _is_url(self.url):
            return "url", URL_ALLOWED
        found = _objects(self.headers)
        if found is None or not all(_HEADER.fullmatch(name) and "\n" not in value and "\r" not in value for name, value in found.items()):
            return "headers", _HEADERS_ALLOWED
        return _certificate(self.cert, self.key)

    @property
    def fixed_headers(self) -> dict[str, str]:
        return _objects(self.headers) or {}


class Postgresql(Section):
    url: str = setting(
        "",
        'The database, without a password: "postgresql://user@host:5432/database". A socket\'s directory goes into '
        "`?host=/run/postgresql`, TLS into `?sslmode=verify-full&sslrootcert=...`.",
        allowed='"postgresql://user@host:port/database"',
        effect="at once",
    )
    password: Secret = setting(Secret(""), "Where the password of that user lies.", allowed=SECRET_ALLOWED, effect="at once")
    table: str = setting(
        "holdfast_messages",
        "The table of the messages, one row each. It is made where it is not there and `columns` is empty.",
        allowed=TABLE_ALLOWED,
        effect="at once",
    )
    columns: str = setting(
        "{}",
        "Columns of a table of your own, and JMESPath over the message for each; store, shard and position have to be in it as well, as "
        "its key. Empty: the columns that docs/bridge.md lists.",
        allowed=_COLUMNS_ALLOWED,
        effect="at once",
    )
    progress_table: str = setting(
        "holdfast_bridges",
        "The table in which each connection of each bridge keeps how far it is, in the transaction of the messages. It is made.",
        allowed=TABLE_ALLOWED,
        effect="at once",
    )

    def wanting(self) -> tuple[str, str] | None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("postgresql", "postgres") or parts.password is not None or "password=" in parts.query:
            return "url", '"postgresql://user@host:port/database", without a password'
        for key in ("table", "progress_table"):
            if not _TABLE.fullmatch(getattr(self, key)):
                return key, TABLE_ALLOWED
        found = _objects(self.columns)
        if found is None or not all(_COLUMN.fullmatch(name) and name not in IDENTITY for name in found):
            return "columns", _COLUMNS_ALLOWED
        return None

    @property
    def expressions(self) -> dict[str, str]:
        return _objects(self.columns) or {}


class Parquet(Section):
    path: str = setting(
        "", "The directory that files are put into; relative to the data directory. It is made.", allowed="a path", effect="at once"
    )
    file_rows_max: Whole = setting(
        100_000, "Messages of a file; then it is finished and can be seen.", unit="messages", ge=1, le=10_000_000, effect="at once"
    )
    file_bytes_max: Size = setting(
        Size.parse("128MiB"),
        "The same by bytes of what was collected for it, which Parquet makes smaller.",
        ge=4096,
        le=2**33,
        effect="at once",
    )
    file_age_max: Duration = setting(
        Duration.parse("10m"), "The same by the time since its first message.", ge=100, le=7 * 86_400_000, effect="at once"
    )
    compression: Literal["zstd", "snappy", "gzip", "none"] = setting("zstd", "How columns are compressed.", effect="at once")

    def wanting(self) -> tuple[str, str] | None:
        return None if self.path and "\0" not in self.path else ("path", 'a path, such as "out/messages"')


def broker_address(url: str) -> tuple[str, int, bool] | None:
    """Host, port, and whether with TLS; None when this is no address of a broker."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    alone = parts.path in ("", "/") and not parts.query and not parts.fragment and parts.username is None
    if parts.scheme not in ("mqtt", "mqtts") or not parts.hostname or not alone or port == 0:
        return None
    secure = parts.scheme == "mqtts"
    return parts.hostname, port or (8883 if secure else 1883), secure


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    sound = url.isprintable() and " " not in url and parts.username is None and port != 0
    return sound and parts.scheme in ("http", "https") and bool(parts.hostname)


def _certificate(cert: str, key: str) -> tuple[str, str] | None:
    if bool(cert) == bool(key):
        return None
    return ("key" if cert else "cert"), "a path where the other of cert and key is one, and nothing else"
