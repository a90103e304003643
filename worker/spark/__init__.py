"""What runs beside Spark in a task's own process. The daemon starts these files and imports none."""
