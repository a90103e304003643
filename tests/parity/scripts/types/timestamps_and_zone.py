# Timestamps come back in the zone of Python; the session's zone is for texts.
from datetime import datetime

from pyspark.sql import SparkSession

spark = SparkSession.builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
frame = spark.createDataFrame([(datetime(2026, 7, 1, 12, 30),)], ["t"])
print("=", frame.first().t, spark.sql("SELECT timestamp_ntz'2026-07-01 12:00:00' AS t").first().t)
