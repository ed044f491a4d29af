"""A Spark session that knows the broker: `session(data_dir)`, and `spark.read.format("holdfast").load()` works without an option.

Finds a Java, says to Spark what it has to be told before its JVM starts, ships `holdfast_spark`, registers the data source and asks
the broker of the data directory for its reader. On this machine everything binds to 127.0.0.1. A session that is there already is
taken as it is, so that a notebook's own, or one of `spark-submit`, gets the data source too.

Leaves to others: what the data source does (holdfast_spark), what the reader is (actors).
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.java import NoSpark, find_java, java_options
from pipeline.package import packaged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK = "127.0.0.1"
MASTER = "local[*,4]"
"""All cores, and four tries of a task: without the number a local Spark gives up at the first, and a restart of the broker ends queries."""
TOKEN_FILE = "pipeline.token"
"""Below the data directory; the reader makes it."""
WANTED_EVERY_S = 20.0
"""How long the reader may be without a connection is a setting, minutes unless somebody says otherwise."""
LOGGING = Path(__file__).with_name("log4j2.properties")

OF_JAVA = "spark.driver.extraJavaOptions"

ALWAYS: Mapping[str, str] = {
    # A time is the same for everybody who reads it; the source says UTC.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Without it Spark refuses a source that takes filters.
    "spark.sql.python.filterPushdown.enabled": "true",
}
"""May be changed in a session that is under way."""

ON_THIS_MACHINE: Mapping[str, str] = {
    "spark.driver.bindAddress": LOOPBACK,
    "spark.driver.host": LOOPBACK,
    "spark.driver.memory": "1g",
    # The default of 200 is for clusters: here each is a task of its own in every micro-batch.
    "spark.sql.shuffle.partitions": "8",
}


class NoBroker(Exception):
    """The broker of a data directory cannot be read from; the message is one sentence for people."""


def session(
    data_dir: str | os.PathLike[str] | None = None,
    *,
    brokers: str | None = None,
    token: str | None = None,
    master: str = MASTER,
    app: str = "holdfast",
    progress: bool | None = None,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """The session. `brokers` and `token`: of a reader that is reached over the network; with `data_dir` neither is needed.

    progress: bars of Spark's on standard error; by itself when that is a terminal. conf: what Spark is told besides; it has the last
    word.
    NoSpark, NoBroker: one cannot be had; one sentence why.
    """
    try:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        from holdfast_spark.register import register
    except ImportError as error:
        raise NoSpark(f"Spark is not installed ({error}): make env-spark, or pip install 'holdfast[spark]'") from None
    if data_dir is not None and brokers is not None:
        raise ValueError("a session has either the data directory of a broker on this machine, or the address of brokers: leave one out")
    if data_dir is None and token is not None and brokers is None:
        raise ValueError("a token without brokers to show it to: name them")
    defaults = _of_data_dir(Path(data_dir)) if data_dir is not None else _given(brokers, token)

    if SparkContext._active_spark_context is not None:
        spark = SparkSession.builder.getOrCreate()
        for key, value in {**ALWAYS, **(conf or {})}.items():
            spark.conf.set(key, value)
    else:
        spark = _start(SparkSession.builder, master, app, sys.stderr.isatty() if progress is None else progress, conf or {})
    spark.sparkContext.addPyFile(str(packaged()))
    register(spark, **defaults)
    if data_dir is not None:
        _keep_wanting(spark, Path(data_dir))
    return spark


def _of_data_dir(data_dir: Path) -> dict[str, str]:
    """Where the reader of this machine's broker is, and what it is asked with. Starts it when nobody has."""
    # Imported here: who reads over the network needs nothing of the broker's processes.
    from actors.asking import NotReached
    from actors.reader.demand import certificate, demand

    try:
        address = demand(data_dir)
        shown = certificate(data_dir)
    except NotReached as error:
        raise NoBroker(str(error)) from None
    tls = {"tls": "true", "caFile": shown} if shown else {}
    return {"brokers": str(address), "tokenFile": str(data_dir.resolve() / TOKEN_FILE), **tls}


def _keep_wanting(spark: SparkSession, data_dir: Path) -> None:
    """Ask for the reader for as long as the session is there: it ends when nobody was connected for a while, as between two cells of a
    notebook."""
    from actors.reader.demand import demand

    context = spark.sparkContext

    def ask() -> None:
        while context._jsc is not None:
            time.sleep(WANTED_EVERY_S)
            # The broker may be down for a moment, or for good: a query that needs it says so itself.
            with suppress(Exception):
                demand(data_dir)

    threading.Thread(target=ask, name="holdfast-reader-wanted", daemon=True).start()


def _given(brokers: str | None, token: str | None) -> dict[str, str]:
    return {name: value for name, value in (("brokers", brokers), ("token", token)) if value is not None}


def _start(builder: SparkSession.Builder, master: str, app: str, progress: bool, conf: Mapping[str, str]) -> SparkSession:
    local = master.startswith("local")
    settings = {
        **ALWAYS,
        **(ON_THIS_MACHINE if local else {}),
        "spark.ui.showConsoleProgress": str(progress).lower(),
        **conf,
        "spark.master": master,
        "spark.app.name": app,
        OF_JAVA: java_options(conf.get(OF_JAVA, ""), LOGGING.as_uri(), local=local),
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    with _environment(_for_the_jvm(local)):
        try:
            spark = builder.getOrCreate()
        except Exception as error:
            # Which class it is depends on how far it came; whatever it is, there is no session, and a person wants to know why.
            raise NoSpark(f"Spark did not start with {os.environ.get('JAVA_HOME', 'this Java')}: {_first_line(error)}") from error
    if spark.sparkContext.uiWebUrl:
        sys.stderr.write(f"Spark UI: {spark.sparkContext.uiWebUrl}\n")
    return spark


def _for_the_jvm(local: bool) -> dict[str, str]:
    """What Spark's launcher and Python workers take from the environment and from nowhere else."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        # spark-submit has started a JVM already, and knows which Java and Python.
        return {}
    wanted = {"JAVA_HOME": str(find_java(os.environ).home)}
    if local:
        # By the name alone it would be any python3 on PATH; the UI listens on all interfaces when nobody says where.
        wanted |= {"PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable), "SPARK_LOCAL_IP": LOOPBACK}
    return wanted


@contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
