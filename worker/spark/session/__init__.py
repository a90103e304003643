"""The process of a Spark task: its session, the work in it, and the progress it reports."""
