"""The code beside Spark: in a task's own process, and in the host that keeps Spark warm.

The worker's daemon imports of it what needs no pyspark and only reads, checks or names something.
"""
