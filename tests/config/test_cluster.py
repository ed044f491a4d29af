"""Settings of several sites: what each needs, what does not fit, and that one site needs none of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.endpoints import Endpoint
from actors.sites.whereabouts import SiteAt, Sites
from config.cluster import is_loopback, ports_of
from config.load import ConfigError, load, load_with_sources, secrets
from config.schema import Config

MESSAGES = "durable_storage.messages"
THREE = (f"{MESSAGES}.n_sites=3", 'register.endpoints=["http://127.0.0.1:2379"]', "cluster.secret=env:WORD")
HERE = "cluster.listen=127.0.0.1:7883"
THERE = "cluster.listen=10.0.0.1:7883"
TLS = ("cluster.tls.ca=/ca.pem", "cluster.tls.cert=/c.pem", "cluster.tls.key=/c.key")


@pytest.mark.parametrize(
    ("sets", "key", "wanted"),
    [
        ((f"{MESSAGES}.n_sites=8",), f"{MESSAGES}.n_sites", "a whole number from 1 to 7"),
        ((f"{MESSAGES}.n_sites=0",), f"{MESSAGES}.n_sites", "a whole number from 1 to 7"),
        ((f"{MESSAGES}.replication_factor=2",), f"{MESSAGES}.replication_factor", "at most 1, which is n_sites"),
        ((*THREE, HERE, f"{MESSAGES}.replication_factor=4"), f"{MESSAGES}.replication_factor", "at most 3, which is n_sites"),
        (THREE, "cluster.listen", "a host and a port at which the other sites reach this one"),
        ((*THREE[:2], HERE), "cluster.secret", "where the secret lies that all sites share, while n_sites is 3"),
        ((THREE[0], THREE[2], HERE), "register.endpoints", "the addresses of an etcd while n_sites is 3"),
        (
            (*THREE, HERE, f"{MESSAGES}.layout.type=record_batch"),
            f"{MESSAGES}.layout.type",
            '"auto", "skipstream" or "wildcard_optimized" while n_sites is 3',
        ),
        ((*THREE, HERE, f"{MESSAGES}.backend=memory"), f"{MESSAGES}.backend", '"builtin_local" or "rocksdb" while n_sites is 3'),
        ((*THREE, THERE), "cluster.tls.ca", "an absolute path, as tls.cert and tls.key do, since 10.0.0.1:7883 is no loopback address"),
        ((*THREE, THERE, *TLS[:2]), "cluster.tls.key", "an absolute path where one of the others"),
        ((*THREE, THERE, *TLS[1:]), "cluster.tls.ca", "an absolute path where one of the others"),
        ((*THREE, THERE, "cluster.tls.ca=ca.pem"), "cluster.tls.ca", "an absolute path or nothing"),
        ((*THREE, "cluster.listen=127.0.0.1:0"), "cluster.listen", "neither port 0 nor all addresses"),
        ((*THREE, "cluster.listen=0.0.0.0:7883", *TLS), "cluster.listen", "neither port 0 nor all addresses"),
        ((*THREE, "cluster.listen=[::]:7883", *TLS), "cluster.listen", "neither port 0 nor all addresses"),
        ((*THREE, "cluster.listen=site-1"), "cluster.listen", "a host and a port"),
        ((*THREE, "cluster.listen=127.0.0.1:65510", f"{MESSAGES}.n_shards=12", "gateway.count=2"), "cluster.listen", "a port up to 65509"),
        ((*THREE, "cluster.listen=127.0.0.1:65407"), "cluster.listen", "a port up to 65406, since 129 more follow it"),
    ],
)
def test_what_does_not_fit_is_one_sentence_with_the_key_to_change(sets: tuple[str, ...], key: str, wanted: str) -> None:
    """And with what it takes."""
    with pytest.raises(ConfigError) as raised:
        load(sets=sets, environ={})
    assert len(raised.value.problems) == 1
    assert raised.value.problems[0].startswith(f"{key} = ") and wanted in raised.value.problems[0]


@pytest.mark.parametrize(
    "sets",
    [
        (*THREE, HERE),
        (*THREE, "cluster.listen=[::1]:7883"),
        (*THREE, "cluster.listen=localhost:7883"),
        (*THREE, THERE, *TLS),
        (*THREE, HERE, *TLS, f"{MESSAGES}.replication_factor=3"),
        (*THREE, HERE, f"{MESSAGES}.replication_factor=2"),
        (*THREE, "cluster.listen=127.0.0.1:65509", f"{MESSAGES}.n_shards=12", "gateway.count=2"),
        (THREE[0], THREE[2], HERE, "register.single_point=accepted", "register.address=127.0.0.1:7883"),
    ],
)
def test_what_fits_is_taken_without_a_notice(sets: tuple[str, ...]) -> None:
    """On loopback without TLS, elsewhere with it."""
    assert load_with_sources(sets=sets, environ={}).notices == ()


def test_with_one_site_it_is_said_that_nobody_listens_there() -> None:
    """The settings may stay in a file that several machines share; nobody shall believe that they do something."""
    notices = load_with_sources(sets=[HERE, "cluster.secret=env:WORD", 'register.endpoints=["http://127.0.0.1:2379"]'], environ={}).notices
    assert len(notices) == 3
    assert notices[0] == f'cluster.listen = "127.0.0.1:7883" (from --set) does nothing while {MESSAGES}.n_sites is 1.'
    assert load_with_sources(sets=["cluster.listen="], environ={}).notices == ()


def test_a_secret_that_could_be_guessed_is_refused(tmp_path: Path) -> None:
    """Whoever has heard one proof can try words at leisure."""
    config = load(sets=[*THREE, HERE], environ={})
    with pytest.raises(ConfigError, match=r"^cluster\.secret = .*WORD.* has 15 bytes, wanted are at least 16\.$"):
        secrets(config, environ={"WORD": "x" * 15})
    assert secrets(config, environ={"WORD": "x" * 16}) == {"env:WORD": b"x" * 16}


@pytest.mark.parametrize(("cores", "sites", "shards"), [(2, 1, 1), (2, 3, 12), (64, 3, 16), (64, 7, 28), (8, 2, 8)])
def test_auto_shards_of_several_sites_are_at_least_four_for_each(cores: int, sites: int, shards: int) -> None:
    """So that each leads some, and what one led is dealt out to all others when it is gone; a plain number counts as it is."""
    sets = [*THREE[1:], HERE, f"{MESSAGES}.n_sites={sites}"]
    assert load(sets=sets, environ={}).shard_count(cores) == shards
    assert load(sets=[*sets, f"{MESSAGES}.n_shards=1"], environ={}).shard_count(cores) == 1


def test_the_ports_that_are_kept_free_are_those_that_sites_use() -> None:
    """The highest is that of the last gateway."""
    known = Sites("a", 5, {"a": SiteAt("a", "127.0.0.1", 7000, 3)})
    assert max(known.gateways().values(), key=lambda at: at.port) == Endpoint(host="127.0.0.1", port=7000 + ports_of(5, 3) - 1)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.1.2.3", True), ("::1", True), ("localhost", True), ("10.0.0.1", False)],
)
def test_loopback_is_what_no_other_machine_reaches(host: str, loopback: bool) -> None:
    """A name is none, whatever it resolves to at the moment."""
    assert is_loopback(host) is loopback


def test_by_default_there_is_one_site() -> None:
    """With one copy, and nothing that listens for others."""
    config = Config()
    assert (config.durable_storage.messages.n_sites, config.durable_storage.messages.copies) == (1, 1)
    assert config.cluster.listen == "" and not config.cluster.secret and not config.cluster.tls.given
