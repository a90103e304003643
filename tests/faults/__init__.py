"""Faults on a real cluster: random kills, freezes and requests, and an independent judge of the end.

`plan` draws from a seed everything that will be done (pure), `driver` does it to real daemons and
servers, `checker` judges rows, lines of tasks and processes (pure). `bin/chaos` runs it for as long
as wanted, and `test_chaos` for a short time.
"""
