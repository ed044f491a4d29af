"""All that Spark's executors import: the protocol of the reader, the data source and sink, decoding, Parquet files (docs/reader.md).

Imports nothing of ours; beside Python's own only numpy, pyarrow and pyspark. Shipped to a cluster as a zip.
"""
