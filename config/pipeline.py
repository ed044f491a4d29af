"""The reader, by which stored messages leave the broker in bulk, and who may use it (docs/reader.md).

Only declares and checks. What a token may do is decided in `actors.reader.access`, which asks the same of filters; it stands above this
floor, so the form of a topic filter is looked at here as in `config.retention`.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from config.fields import Flag, Section, Whole, conflict, setting
from config.retention import check_filters
from config.values import Bind, Duration, Size

TOKENS_MAX = 100
TOKENS_ALLOWED = (
    f"a list of at most {TOKENS_MAX} tokens, each with a name, filters and either sha256 or token_file, "
    'such as [{name = "lake", token_file = "/etc/holdfast/lake.token", filters = ["plant/#"]}]'
)
_NAME = re.compile(r"[a-z0-9_-]{1,32}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class Token(Section):
    name: str = setting(..., "What it is called in logs; its leases have this name, or begin with it and a dot.")
    sha256: str = setting("", "SHA-256 of the token, 64 hex digits: what is kept here opens nothing.")
    token_file: str = setting("", "Absolute path of a file with the token in its first line, instead of `sha256`.")
    filters: tuple[str, ...] = setting(
        ..., "What may be read, as by SUBSCRIBE: each filter that is asked for has to be covered by one of these."
    )
    write: Flag = setting(False, "Whether messages may be written, to topics that the filters match, and whether leases may block.")


class Pipeline(Section):
    reader: Literal["on demand", "always", "never"] = setting(
        "on demand",
        "When the reader process runs. on demand: from the first use of the pipeline on this machine until nobody was connected for "
        "`idle_stop`. always: as long as the broker, as executors on other machines want it, which cannot ask for it. never: nobody reads.",
        effect="at once",
    )
    listen: Bind = setting(
        Bind("127.0.0.1:7883"),
        "Where the reader listens. Only this machine by default: whoever opens it to a network sets `tls_cert` and `tls_key` too, as "
        "tokens and messages are readable on the way otherwise. Port 0 takes a free port; `holdfast status` says which.",
    )
    tls_cert: str = setting("", "Absolute path of the certificate chain (PEM) that the reader shows. Empty: no TLS.")
    tls_key: str = setting("", "Absolute path of the key of that certificate (PEM).")
    max_scans: Whole = setting(
        4,
        "Scans at a time. Each keeps one core busy at most, and all of them together about one: further ones wait for 5 s and are told to "
        "come later.",
        unit="scans",
        ge=1,
        le=64,
        effect="at once",
    )
    max_connections: Whole = setting(
        100,
        "Connections at a time; each is a thread. A Spark task has one while it reads, the driver one or two.",
        unit="connections",
        ge=1,
        le=10_000,
        effect="at once",
    )
    bytes_per_s: Annotated[Size, Field(ge=2**16, le=2**50)] | Literal["unlimited"] = setting(
        "unlimited",
        "The most that all scans together send in a second, so that a reading of everything leaves disk and network to others.",
        allowed='a size from 64KiB to 1024TiB, such as "100MiB" or a number of bytes, or "unlimited"',
        effect="at once",
    )
    idle_stop: Duration = setting(
        Duration.parse("5m"),
        'With reader = "on demand": how long after its last connection the reader ends. Starting it again takes about two seconds.',
        ge=1000,
        effect="at once",
    )
    tokens: tuple[Token, ...] = setting(
        (),
        "Who may read besides those who can read `pipeline.token` in the data directory, which has all rights. A change counts for "
        "connections that begin from then on.",
        unit="tokens",
        allowed=TOKENS_ALLOWED,
        effect="at once",
    )

    @model_validator(mode="after")
    def _together(self) -> Self:
        if bool(self.tls_cert) != bool(self.tls_key):
            raise conflict(
                "tls_key" if self.tls_cert else "tls_cert", "a path where the other of tls_cert and tls_key is one, and nothing else"
            )
        for key in ("tls_cert", "tls_key"):
            path = getattr(self, key)
            if path and not path.startswith("/"):
                raise conflict(key, f'an absolute path, and "{path}" is none')
        _check_tokens("tokens", self.tokens)
        return self


def _check_tokens(key: str, tokens: tuple[Token, ...]) -> None:
    if len(tokens) > TOKENS_MAX:
        raise conflict(key, f"at most {TOKENS_MAX} tokens, and there are {len(tokens)}")
    names: set[str] = set()
    for each in tokens:
        if not _NAME.fullmatch(each.name):
            raise conflict(key, f'names of 1 to 32 of a-z, 0-9, _ and -, and "{each.name}" is none')
        if each.name in names:
            raise conflict(key, f'every name once, and "{each.name}" is there twice')
        names.add(each.name)
        if bool(each.sha256) == bool(each.token_file):
            raise conflict(key, f'either sha256 or token_file in each token, and "{each.name}" has {"both" if each.sha256 else "none"}')
        if each.sha256 and not _SHA256.fullmatch(each.sha256):
            raise conflict(key, f'a sha256 of 64 digits of 0-9 and a-f, and that of "{each.name}" is none')
        if each.token_file and not each.token_file.startswith("/"):
            raise conflict(key, f'absolute paths, and the token_file of "{each.name}" is none')
        if not each.filters:
            raise conflict(key, f'at least one filter in each token, and "{each.name}" has none')
        check_filters(key, each.filters)
