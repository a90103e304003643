"""Streams in Spark: records of Kafka become rows of a dataset, in a task's own process.

A supervisor's specification (`common.model.streams`) says how. Parts: `records` and `times` read a
record, `expressions` and `filters` are its `transformSpec`, `rows` puts them together, `rollup`
aggregates, `batches` writes files, `kafka_source` reads the topic.
"""
