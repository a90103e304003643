"""Topologies on Structured Streaming.

program       what all processes of a query know: the topology, its plan, its settings
outbox        what a task emits, as rows for those that take it
stages        the functions that Spark runs: bolts, sinks, packing and unpacking of keys
keyed         a stateful bolt as a stateful processor of Spark
spout_source  spouts as a streaming source of Spark
frames        the operators of a query, of these
figures       what components have done, counted
task          the program of a topology's task, which starts the queries and obeys people
"""
