"""What the register says of the cluster and of sites: golden bytes, and one sentence for what cannot be."""

from __future__ import annotations

import pytest

from actors.sites.formats import Known
from actors.sites.records import Cluster, RecordUnreadable, SiteRecord

CLUSTER = Cluster(12, 3, 3, "5" * 16, 2, 4, 5)
SITE = SiteRecord("0d6bb5e63c0d6bb5", "10.0.0.1", 7883, 2, "n1", 1, 1, release="0.2.0", knows=Known(4, 5))


def test_the_bytes_that_are_in_the_register() -> None:
    """Golden: a change of them is a new version."""
    assert CLUSTER.pack() == (
        b'{"version":1,"n_shards":12,"n_sites":3,"replication_factor":3,"id":"5555555555555555","incarnation":2,"format":4,"announced":5}'
    )
    assert CLUSTER.store == "5555555555555555:2"
    before = Cluster.unpack(b'{"version":1,"n_shards":12,"n_sites":3,"replication_factor":3}')
    assert before == Cluster(12, 3, 3) and not before.store, "it has no name yet"
    assert before.use == (1, 1), "and was written by programs that know one format"
    assert SITE.pack() == (
        b'{"version":1,"site":"0d6bb5e63c0d6bb5","host":"10.0.0.1","port":7883,"n_gateways":2,"name":"n1","incarnation":1,"format":1,'
        b'"state":"member","release":"0.2.0","knows":[4,5]}'
    )
    silent = SiteRecord.unpack(SITE.pack().replace(b',"release":"0.2.0","knows":[4,5]', b""))
    assert (silent.release, silent.knows) == ("", (1, 1)), "one that has never said what it knows"
    assert Cluster.unpack(CLUSTER.pack()) == CLUSTER and SiteRecord.unpack(SITE.pack()) == SITE


def test_sites_that_do_not_agree_are_told_the_setting_and_both_values() -> None:
    """One sentence."""
    assert CLUSTER.disagreement(CLUSTER) == ""
    assert CLUSTER.disagreement(Cluster(16, 3, 3)) == (
        "durable_storage.messages.n_shards is 16 here and 12 in the register of this cluster: it has to be the same on all sites"
    )
    assert "replication_factor is 1 here and 3 in" in CLUSTER.disagreement(Cluster(12, 3, 1))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\xff", "no JSON"),
        (b"[1]", "version 'list'"),
        (b'{"version":2}', "version 2; this program reads version 1"),
        (b'{"version":1,"n_shards":1}', "has no 'n_sites'"),
        (b'{"version":1,"n_shards":0,"n_sites":1,"replication_factor":1}', "cannot be"),
        (b'{"version":1,"n_shards":1,"n_sites":1,"replication_factor":1,"id":7}', "cannot be"),
        (b'{"version":1,"n_shards":1,"n_sites":1,"replication_factor":1,"format":0}', "cannot be"),
        (b'{"version":1,"n_shards":"1","n_sites":1,"replication_factor":1}', "cannot be"),
    ],
)
def test_what_is_no_record_of_a_cluster_is_refused(data: bytes, said: str) -> None:
    """Another version, or none of ours at all."""
    with pytest.raises(RecordUnreadable, match=said):
        Cluster.unpack(data)


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        (b'"member"', b'"gone"', "'gone' in the register"),
        (b"7883", b'"7883"', "cannot be"),
        (b'"name":"n1",', b"", "has no 'name'"),
        (b"[4,5]", b"[4]", r"knows the formats \[4\]"),
        (b"[4,5]", b'[4,"5"]', "cannot be"),
    ],
)
def test_what_is_no_record_of_a_site_is_refused(was: bytes, now: bytes, said: str) -> None:
    """So that nobody dials nonsense."""
    with pytest.raises(RecordUnreadable, match=said):
        SiteRecord.unpack(SITE.pack().replace(was, now))
