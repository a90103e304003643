"""Benches that strain a cluster for minutes: a burst, slow statements, lost workers, a loud task, a soak.

Each starts clusters of its own, and `bin/bench` runs it only if it is named.
"""
