"""Topologies: spouts, bolts and the groupings between them, in Storm's manner.

`components` is what authors write, `groupings` and `declaration` what a topology says, `checking`
finds its mistakes, `routing` says to which tasks a record goes, and `trial` runs a topology in this
process, for its author's tests. Nothing here knows Spark.
"""
