"""deploy/kubernetes/holdfast.yaml against the program: names, ports, paths and settings that have to be the same there and here.

Not a cluster: nobody has applied it in a test. It was read by KubeRay's own schema when it was written (docs/clusters.md).
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # it comes with Ray, and without stubs

from actors import ROOT
from actors.admin.health import READY_PATH
from actors.environment import RECONNECT
from actors.joining import SHORT_RECONNECT_S
from config.load import load
from config.schema import Config
from tests.cluster.nodes import OF_EVERY_NODE, Nodes
from tests.house.test_container import the

MANIFEST = ROOT / "deploy/kubernetes/holdfast.yaml"
TEXT = MANIFEST.read_text()
DOCUMENTS: dict[tuple[str, str], Any] = {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(TEXT)}
CLUSTER = DOCUMENTS["RayCluster", "holdfast"]["spec"]
HEAD, (GROUP,) = CLUSTER["headGroupSpec"], CLUSTER["workerGroupSpecs"]
POD = GROUP["template"]["spec"]
RAY_WORKER, BROKER = POD["containers"]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """What the pod reads."""
    path = tmp_path / "holdfast.toml"
    path.write_text(DOCUMENTS["ConfigMap", "holdfast"]["data"]["holdfast.toml"])
    return load(path, environ={})


def test_the_broker_finds_its_data_its_configuration_and_its_head(config: Config) -> None:
    """Mounted where the image and the configuration have them, in both containers; the head by the name that KubeRay gives its service."""
    mounts = {each["mountPath"]: each["name"] for each in BROKER["volumeMounts"]}
    assert RAY_WORKER["volumeMounts"] == BROKER["volumeMounts"], "actors are in the one, the launcher is in the other"
    assert mounts[config.data_dir] == "data" and config.data_dir == the("VOLUME")
    assert mounts[f"{the('WORKDIR')}/{BROKER['args'][-1]}"] == "config" and "/tmp" in mounts and "/dev/shm" in mounts
    volumes = {each["name"]: each for each in POD["volumes"]}
    assert set(volumes) == set(mounts.values())
    assert ("PersistentVolumeClaim", volumes["data"]["persistentVolumeClaim"]["claimName"]) in DOCUMENTS
    assert ("ConfigMap", volumes["config"]["configMap"]["name"]) in DOCUMENTS
    gcs = HEAD["template"]["spec"]["containers"][0]["ports"][0]["containerPort"]
    assert config.ray.address == f"holdfast-head-svc:{gcs}"
    assert POD["shareProcessNamespace"] is True, "the driver looks for the raylet among the processes it sees"


def test_one_pod_is_one_site(config: Config) -> None:
    """Never two at the same volume, and the label says which."""
    assert (GROUP["replicas"], GROUP["minReplicas"], GROUP["maxReplicas"]) == (1, 1, 1)
    claim = DOCUMENTS["PersistentVolumeClaim", f"holdfast-{GROUP['groupName']}"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]
    assert GROUP["labels"] == {"holdfast-site": GROUP["groupName"]}
    assert config.durable_storage.messages.n_sites == 1


def test_each_port_of_ray_is_given_and_each_option_is_one_that_real_nodes_are_started_with() -> None:
    """As in tests/cluster/test_clusters.py, which looks where these listen; no two are the same."""
    nodes = Nodes("one")
    shutil.rmtree(nodes.directory)
    options = {option.partition("=")[0] for option in nodes.workers["one"].options}
    for group in (HEAD, GROUP):
        params = group["rayStartParams"]
        assert {f"--{name}" for name in params} <= options
        assert set(OF_EVERY_NODE) <= {f"--{name}" for name in params}
        ports = [int(value) for name, value in params.items() if name.endswith("-port")]
        assert len(set(ports)) == len(ports) == len(OF_EVERY_NODE) + 2
        assert all(isinstance(value, str) for value in params.values())
        first, last = int(params["min-worker-port"]), int(params["max-worker-port"])
        assert last - first >= 60 and not any(first <= port <= last for port in ports[:-2])


def test_the_head_may_be_away(config: Config) -> None:
    """It keeps what it knows on a volume, and the raylet waits for it longer than it takes to put a pod back."""
    assert CLUSTER["gcsFaultToleranceOptions"]["backend"] == "rocksdb"
    environment = {each["name"]: each["value"] for each in RAY_WORKER["env"]}
    assert int(environment[RECONNECT]) > SHORT_RECONNECT_S
    # A probe that needs the admin process would end a broker that serves, as nobody brings that one back without a head.
    assert "livenessProbe" not in BROKER and "httpGet" not in RAY_WORKER["readinessProbe"]
    assert BROKER["startupProbe"]["httpGet"] == {"path": READY_PATH, "port": config.admin.listen.port}


def test_services_and_probes_are_at_the_ports_of_the_configuration(config: Config) -> None:
    """By the names of the container's ports, and by the labels of KubeRay's pods."""
    port = int(config.listeners.tcp.bind.rpartition(":")[2])
    ours = load(environ={})
    assert ours.listeners.tcp.bind == f"127.0.0.1:{port}" and ours.admin.listen.port == config.admin.listen.port
    assert {each["name"]: each["containerPort"] for each in RAY_WORKER["ports"]} == {"mqtt": port, "admin": config.admin.listen.port}
    assert RAY_WORKER["readinessProbe"]["tcpSocket"]["port"] == port
    assert RAY_WORKER["livenessProbe"]["tcpSocket"]["port"] == int(GROUP["rayStartParams"]["node-manager-port"])
    for name, number in (("mqtt", port), ("admin", config.admin.listen.port)):
        service = DOCUMENTS["Service", f"holdfast-{name}"]["spec"]
        assert service["ports"] == [{"name": name, "port": number, "targetPort": name}]
        assert service["selector"] == {"ray.io/cluster": "holdfast", "ray.io/group": GROUP["groupName"]}


def test_the_token_comes_from_one_secret_and_none_is_in_the_file() -> None:
    """The one that the file says how to make; KubeRay hands it to its containers, the broker's has it by itself."""
    name = CLUSTER["authOptions"]["secretName"]
    by_name = {each["name"]: each for each in BROKER["env"]}
    assert CLUSTER["authOptions"]["mode"] == by_name["RAY_AUTH_MODE"]["value"] == "token"
    assert by_name["RAY_AUTH_TOKEN"]["valueFrom"]["secretKeyRef"] == {"name": name, "key": "auth_token"}
    assert f"create secret generic {name} --from-literal=auth_token=" in TEXT
    assert not any(kind == "Secret" for kind, _ in DOCUMENTS)


def test_nobody_is_root_and_the_image_is_the_same_everywhere() -> None:
    """The user of the image; the Ray that is installed."""
    containers = [*HEAD["template"]["spec"]["containers"], RAY_WORKER, BROKER]
    assert len({each["image"] for each in containers}) == 1
    for each in containers:
        assert each["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    for pod in (HEAD["template"]["spec"], POD):
        security = pod["securityContext"]
        assert f"{security['runAsUser']}:{security['runAsGroup']}" == the("USER") and security["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
    assert f"ray=={CLUSTER['rayVersion']}\n" in (ROOT / "requirements/core.txt").read_text()


def test_the_raylet_ends_after_the_broker(config: Config, tmp_path: Path) -> None:
    """What the kubelet runs before it ends Ray waits for the record of the run to go, which is the launcher's last act."""
    assert re.search(r'data_dir / "run\.json"', (ROOT / "actors/run.py").read_text())
    command = RAY_WORKER["lifecycle"]["preStop"]["exec"]["command"]
    assert f"{config.data_dir}/run.json" in command[-1]
    record = tmp_path / "run.json"
    record.touch()
    waiting = subprocess.Popen([*command[:-1], command[-1].replace(config.data_dir, str(tmp_path))])
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.wait(1.5)
    record.unlink()
    assert waiting.wait(10) == 0 and POD["terminationGracePeriodSeconds"] > 60
