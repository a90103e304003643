"""The progress of a Spark application: measured, added up, and written to the attempt's facts."""
