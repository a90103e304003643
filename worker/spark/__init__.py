"""What runs beside Spark in a task's own process. The daemon imports nothing of it."""
