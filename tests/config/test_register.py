"""Settings of the register: what fits together."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from config.register import Register, RegisterTls, standing
from config.values import Bind

THREE = ("https://a:2379", "https://b:2379", "https://[::1]:2379")


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"endpoints": ("a:2379",)}, "endpoints"),
        ({"endpoints": ("https://a",)}, "endpoints"),
        ({"endpoints": ("https://a:99999",)}, "endpoints"),
        ({"endpoints": ("https://user:word@a:2379",)}, "endpoints"),
        ({"endpoints": ("http://a:2379", "https://b:2379")}, "endpoints"),
        ({"endpoints": ("http://a:2379", "http://a:2379")}, "endpoints"),
        ({"endpoints": tuple(f"http://a:{port}" for port in range(1, 18))}, "endpoints"),
        ({"endpoints": ("http://a:2379",), "tls": RegisterTls(ca="/ca.pem")}, "endpoints"),
        ({"username": "holdfast"}, "password"),
        ({"password": "env:WORD"}, "username"),
        ({"tls": {"cert": "/c.pem"}}, "key"),
        ({"tls": {"ca": "ca.pem"}}, "ca"),
        ({"prefix": "holdfast"}, "prefix"),
        ({"address": "10.0.0.1:7883"}, "address"),
        ({"address": "10.0.0.1:7883", "single_point": "accepted", "endpoints": ("http://a:2379",)}, "address"),
        ({"address": "10.0.0.1", "single_point": "accepted"}, "address"),
    ],
)
def test_what_does_not_fit_is_refused(given: dict[str, object], key: str) -> None:
    """The key that is to be changed is named."""
    with pytest.raises(ValidationError, match=key):
        Register.model_validate(given)


def test_what_fits_is_taken() -> None:
    """Three members with TLS, a client certificate and a user; one without anything."""
    tls = {"ca": "/ca.pem", "cert": "/c.pem", "key": "/c.key"}
    register = Register.model_validate({"endpoints": THREE, "tls": tls, "username": "holdfast", "password": "env:WORD", "prefix": "/a/b/"})
    assert register.endpoints == THREE
    Register(endpoints=("http://127.0.0.1:2379",))
    single = Register.model_validate({"single_point": "accepted", "address": "[::1]:7883"})
    assert isinstance(single.address, Bind) and (single.address.host, single.address.port) == ("::1", 7883)


def test_several_sites_need_etcd_or_somebody_who_accepts_a_single_point() -> None:
    """One site needs nothing."""
    assert Register().stands_for(1)
    assert not Register().stands_for(3)
    assert Register(endpoints=THREE).stands_for(3)
    assert Register(single_point="accepted").stands_for(3)


def test_status_says_what_hangs_on_it() -> None:
    """A single point is called one."""
    assert standing(Register(), 1) == "register: in a file of this site"
    assert "a single point: while it is away, no shard gets another leader" in standing(Register(single_point="accepted"), 3)
    assert standing(Register(endpoints=THREE), 3) == "register: etcd, 3 endpoints"
    assert "while one is away" in standing(Register(endpoints=THREE[:2]), 3)
