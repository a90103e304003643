"""Decisions about tasks without a worker: branches, upstreams, deadlocks; and about complements.

Pure: definitions, parameters, outcomes and answers of the tables come in, verdicts go out. Nothing
here waits, reads or writes; `master.engine` and the loops carry the verdicts out.
"""
