"""Makes `format("holdfast")` known to a Spark session; the way in for a script that runs by `spark-submit --py-files holdfast_spark.zip`.

    from holdfast_spark.register import register
    register(spark, brokers="broker.example:7883", tokenFile="/run/secrets/holdfast")
    spark.read.format("holdfast").option("topicFilter", "plant/#").load()

What is given here counts where a read or a write does not say otherwise. One that names its own brokers takes nothing of it: the token
of one broker is nobody else's business.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

from pyspark.sql import SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict

from holdfast_spark.acks import acknowledge
from holdfast_spark.options import read_options
from holdfast_spark.source import HoldfastDataSource

_listening: set[tuple[str, str]] = set()
"""Which sessions tell which brokers what is committed: Spark would call a second listener as well."""
_SECRETS = ("token", "tokenFile")


def register(spark: SparkSession, **defaults: str) -> None:
    """Once more is no harm: the defaults are those of the last time."""
    spark.dataSource.register(bound(defaults))
    if "brokers" not in defaults:
        return
    heard = (str(spark.sparkContext.applicationId), defaults["brokers"])
    if heard not in _listening:
        acknowledge(spark, read_options(defaults, stream=None).endpoint)
        _listening.add(heard)


def bound(defaults: Mapping[str, str]) -> type[HoldfastDataSource]:
    """The data source, with these options where none are given.

    A class made here travels to Spark's workers by value, its defaults with it: they cannot read Spark's configuration.
    """

    class Bound(HoldfastDataSource):
        def __init__(self, options: MutableMapping[str, str]) -> None:
            super().__init__(merged(defaults, options))

    return Bound


def merged(defaults: Mapping[str, str], options: Mapping[str, str]) -> MutableMapping[str, str]:
    """Options as Spark gives them, whatever their capitals, and the defaults that go with them."""
    given: MutableMapping[str, str] = CaseInsensitiveDict(options)
    if "brokers" in given:
        return given
    has_secret = any(secret in given for secret in _SECRETS)
    for name, value in defaults.items():
        if name not in given and not (has_secret and name in _SECRETS):
            given[name] = value
    return given
