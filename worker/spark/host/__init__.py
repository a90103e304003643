"""The Spark host: one process beside each worker daemon that keeps Spark warm for tasks."""
