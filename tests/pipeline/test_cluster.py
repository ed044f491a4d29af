"""A standalone cluster reads a broker's store: `spark-submit --py-files` and nothing of ours installed or on the path."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.package import zipped
from tests.actors.served import said, served
from tests.pipeline.standalone import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.needs("spark"), pytest.mark.timeout(600)]

ROWS = 3000

SCRIPT = """
import json, sys
from pyspark.sql import SparkSession
from holdfast_spark.register import register

brokers, token, result = sys.argv[1:]
spark = SparkSession.builder.appName("rows").getOrCreate()
register(spark, brokers=brokers, token=token)
frame = spark.read.format("holdfast").option("topicFilter", "plant/#").option("maxRowsPerPartition", "500").load()


def told(batches):
    import config, pipeline, holdfast_spark, pyarrow
    seen = [config.__file__, pipeline.__file__, holdfast_spark.__file__]
    for batch in batches:
        columns = [batch.column(0), *([each] * batch.num_rows for each in seen)]
        yield pyarrow.record_batch(columns, names=["payload", "config", "pipeline", "ours"])


rows = frame.select("payload").mapInArrow(told, "payload binary, config string, pipeline string, ours string").collect()
with open(result, "w") as file:
    json.dump({
        "count": frame.count(),
        "payloads": sorted(int(row.payload) for row in rows),
        "where": sorted({(row.config, row.pipeline, row.ours) for row in rows}),
        "partitions": frame.rdd.getNumPartitions(),
        "master": spark.sparkContext.master,
    }, file)
"""


def test_a_cluster_with_other_packages_of_our_names_counts_every_row(tmp_path: Path) -> None:
    """Workers have a `config` and a `pipeline` of somebody else first on their path, and get those; what reads for them is ours, from the
    zip."""
    foreign = tmp_path / "foreign"
    for name in ("config", "pipeline"):
        (foreign / name).mkdir(parents=True)
        (foreign / name / "__init__.py").write_text("# Somebody else's.\n")
    theirs = {"PYTHONPATH": str(foreign)}
    script, package, result = tmp_path / "rows.py", tmp_path / "holdfast_spark.zip", tmp_path / "result.json"
    script.write_text(SCRIPT)
    package.write_bytes(zipped())
    messages = [said(f"plant/{n % 5}/temp".encode(), b"%d" % n, client=b"c%d" % (n % 20)) for n in range(ROWS)]

    with served(*messages, said(b"elsewhere", b"no"), n_shards=2) as broker, Cluster(tmp_path, theirs) as cluster:
        words = (broker.address, broker.token, str(result))
        done = cluster.submit(script, package, *words, environment=theirs, within_s=400)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{cluster.story()}"

    found = json.loads(result.read_text())
    assert found["master"] == cluster.url
    assert found["count"] == ROWS
    assert found["payloads"] == list(range(ROWS))
    assert found["partitions"] >= 2
    ((config, pipeline, ours),) = found["where"]
    assert (config, pipeline) == (str(foreign / "config" / "__init__.py"), str(foreign / "pipeline" / "__init__.py"))
    assert ours.endswith("/holdfast_spark.zip/holdfast_spark/__init__.py")
