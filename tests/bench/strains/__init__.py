"""Benches that strain a cluster for minutes. Each starts clusters of its own.

`bin/bench` runs one only if it is named.
"""
