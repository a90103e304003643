"""The causes of failures, read from the errors and logs of Spark and Python."""
