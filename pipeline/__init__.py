"""Stored messages and Spark, the driver's side: session, archive, restore, audit, capacity, one view (docs/reader.md)."""
