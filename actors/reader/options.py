"""What the reader takes from the configuration, in its own words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from config.pipeline import Token
from config.schema import Config

When = Literal["on demand", "always", "never"]


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """host, port: 0 is any free one.  bytes_per_s 0: unlimited."""

    when: When
    host: str
    port: int
    tls_cert: str
    tls_key: str
    max_scans: int
    max_connections: int
    bytes_per_s: int
    idle_stop_s: float
    tokens: tuple[Token, ...]


def reader_options(config: Config) -> ReaderOptions:
    pipeline = config.pipeline
    return ReaderOptions(
        when=pipeline.reader,
        host=pipeline.listen.host,
        port=pipeline.listen.port,
        tls_cert=pipeline.tls_cert,
        tls_key=pipeline.tls_key,
        max_scans=pipeline.max_scans,
        max_connections=pipeline.max_connections,
        bytes_per_s=0 if pipeline.bytes_per_s == "unlimited" else int(pipeline.bytes_per_s),
        idle_stop_s=pipeline.idle_stop.seconds,
        tokens=pipeline.tokens,
    )
