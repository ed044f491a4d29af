"""Whether a browser may connect from the page that it shows: RFC 6455's Origin, RFC 6454's comparison.

A browser sends cookies and reaches loopback for any page that somebody lures its user to, so a page's origin has to be that of the
broker, or a listed one.  Programs that are no browser send none.
"""

from __future__ import annotations

from collections.abc import Collection

ANYWHERE = "*"
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


def origin_allowed(origin: str | None, host: str, secure: bool, listed: Collection[str]) -> bool:
    """host: of the request.  secure: it came by TLS; then a page that did not is another origin, while behind a proxy that ends TLS
    the scheme is not known here and either will do."""
    if origin is None or ANYWHERE in listed:
        return True
    found = _normal(origin)
    if found is None:
        return False
    if any(found == _normal(each) for each in listed):
        return True
    schemes = ("https",) if secure else ("http", "https")
    return any(found == _normal(f"{scheme}://{host}") for scheme in schemes)


def _normal(origin: str) -> tuple[str, str] | None:
    """Scheme, and host with a port that is not the scheme's own; None: it is no origin of a page from the net, such as `null`."""
    scheme, found, host = origin.strip().lower().partition("://")
    if not found or not scheme or not host or "/" in host or "@" in host:
        return None
    default = _DEFAULT_PORTS.get(scheme)
    return scheme, host.removesuffix(default) if default else host
