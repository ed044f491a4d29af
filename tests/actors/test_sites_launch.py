"""What a start makes of the settings of several sites: plan, secret, session actors, and what the data directory keeps of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from actors.datadir import FORMAT_VERSION, FORMAT_VERSION_SITES, DataDirectory, DirectoryError, open_data_directory, read_site
from actors.launcher import _topology
from actors.spec import LaunchSpec, contract
from actors.topology import SitesPlan, Topology
from actors.wire import Wire
from cli.up import launch_spec, wrong_files
from config.load import load, secrets
from tests.listening.authority import Authority

SETS = (
    "durable_storage.messages.n_sites=3",
    "durable_storage.messages.replication_factor=3",
    'register.endpoints=["http://127.0.0.1:2379"]',
    "cluster.secret=env:WORD",
    "cluster.listen=127.0.0.1:7883",
)
WORD = b"sixteen bytes or more"


def spec_of(data_dir: Path, *sets: str) -> LaunchSpec:
    config = load(sets=[*sets, f"data_dir={data_dir}"], environ={})
    opened = secrets(config, environ={"WORD": WORD.decode()})
    return LaunchSpec.from_json(launch_spec(config, cores=2, start_within=None, opened=opened).to_json())


def opened(path: Path, n_sites: int = 1, replication_factor: int = 1) -> DataDirectory:
    return open_data_directory(path, n_shards=None, n_shards_new=12, n_sites=n_sites, replication_factor=replication_factor)


def topology_of(spec: LaunchSpec, data: DataDirectory) -> Topology:
    data.begin_run(joined=False)
    topology = _topology(spec, data, {})
    data.end_run()
    return Topology.from_json(topology.to_json())


def test_several_sites_share_a_secret_and_have_a_session_actor_for_each_shard(tmp_path: Path) -> None:
    """The plan travels with the topology; every link proves the secret of the cluster."""
    spec = spec_of(tmp_path, *SETS)
    assert spec.n_shards_new == 12
    data = opened(tmp_path, 3, 3)
    topology = topology_of(spec, data)
    assert topology.sites == SitesPlan(3, 3, "127.0.0.1", 7883)
    assert topology.secret == WORD and Wire.of(topology) == Wire(WORD)
    assert (topology.n_shards, topology.n_sessions) == (12, 12)
    assert [topology.session_of_shard(shard) for shard in range(12)] == list(range(12))
    data.close()


def test_one_site_is_as_it_was(tmp_path: Path) -> None:
    """Its own secret, no plan, whatever stands in the section `cluster`."""
    spec = spec_of(tmp_path, *SETS[2:])
    data = opened(tmp_path)
    topology = topology_of(spec, data)
    assert topology.sites is None and topology.secret == data.secret and topology.n_sessions == 1
    data.close()


def test_certificates_reach_the_plan(tmp_path: Path) -> None:
    """With the paths as they stand in the configuration."""
    tls = [f"cluster.tls.{key}=/{key}.pem" for key in ("ca", "cert", "key")]
    assert spec_of(tmp_path, *SETS, *tls).sites == SitesPlan(3, 3, "127.0.0.1", 7883, "/ca.pem", "/cert.pem", "/key.pem")


def test_the_number_of_sites_and_of_copies_are_those_of_the_first_start(tmp_path: Path) -> None:
    """In both directions; the sentence says what it is."""
    opened(tmp_path / "one").close()
    opened(tmp_path / "three", 3, 3).close()
    for path, sites in (("one", 3), ("three", 1), ("three", 5)):
        with pytest.raises(DirectoryError, match=r"has n_sites = \d, which cannot be changed, .* asks for \d: docs/sites.md says"):
            opened(tmp_path / path, sites)
    with pytest.raises(DirectoryError, match="has replication_factor = 3, which cannot be changed, and the configuration asks for 2"):
        opened(tmp_path / "three", 3, 2)
    again = opened(tmp_path / "three", 3, 3)
    assert (again.site.n_sites, again.site.replication_factor) == (3, 3)
    again.close()


def test_a_directory_of_several_sites_is_not_read_by_who_knows_of_one_only(tmp_path: Path) -> None:
    """An older Holdfast would serve it as if it stood alone. A directory of one site stays readable by it."""
    for path, n_sites, version in (("one", 1, FORMAT_VERSION), ("three", 3, FORMAT_VERSION_SITES)):
        opened(tmp_path / path, n_sites, n_sites).close()
        opened(tmp_path / path, n_sites, n_sites).close()
        assert json.loads((tmp_path / path / "site.json").read_text())["format"] == version


def test_a_directory_of_before_there_were_several_has_one(tmp_path: Path) -> None:
    """Its site.json does not say."""
    opened(tmp_path).close()
    path = tmp_path / "site.json"
    fields = json.loads(path.read_text())
    del fields["n_sites"], fields["replication_factor"]
    path.write_text(json.dumps(fields))
    site = read_site(tmp_path)
    assert site is not None and (site.n_sites, site.replication_factor) == (1, 1)
    opened(tmp_path).close()


def test_certificates_are_looked_at_before_anything_is_started(tmp_path: Path) -> None:
    """As those of listeners: a file that is missing, one of another CA, one that has expired."""
    ours, other = Authority(tmp_path / "ours"), Authority(tmp_path / "other")
    good, expired, foreign = ours.issue("good"), ours.issue("late", days=-1), other.issue("foreign")

    def problems(ca: str, cert: str, key: str) -> list[str]:
        tls = f"cluster.tls.ca={ca}", f"cluster.tls.cert={cert}", f"cluster.tls.key={key}"
        return wrong_files(load(sets=[*SETS, *tls], environ={}), {})

    assert problems(ours.ca, good.cert, good.key) == []
    assert problems(ours.ca, "/nowhere.pem", good.key) == ["cluster.tls.cert: /nowhere.pem cannot be read: No such file or directory"]
    assert problems(ours.ca, good.cert, expired.key) == [
        f"cluster.tls.cert and cluster.tls.key: {good.cert} and {expired.key} cannot be used: key values mismatch"
    ]
    believed = f"is not believed with cluster.tls.ca {ours.ca}:"
    assert problems(ours.ca, expired.cert, expired.key) == [f"cluster.tls.cert: {expired.cert} {believed} certificate has expired"]
    assert problems(ours.ca, foreign.cert, foreign.key)[0].startswith(f"cluster.tls.cert: {foreign.cert} {believed}")
    assert wrong_files(load(sets=SETS, environ={}), {}) == []


@pytest.mark.parametrize(("copies", "words"), [(2, "2 of 2 or more"), (3, "2 of 3 or more"), (4, "3 of 4 or more"), (7, "4 of 7 or more")])
def test_up_promises_what_so_many_copies_keep(copies: int, words: str) -> None:
    """Nothing beyond what one site promises when there is one copy."""
    plan = SitesPlan(7, copies, "127.0.0.1", 7883)
    assert words in contract(plan) and "losing the disks of" in contract(plan)
    assert "one copy" in contract(None) and "one copy" in contract(SitesPlan(3, 1, "127.0.0.1", 7883))
