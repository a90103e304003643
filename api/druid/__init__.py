"""Druid's HTTP API of supervisors, tasks and workers, below `/druid/indexer/v1`."""
