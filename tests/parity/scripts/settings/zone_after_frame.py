# The time zone is set after the frame was created.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.conf.set("spark.sql.session.timeZone", "UTC")
frame = spark.sql(
    "SELECT cast(timestamp'2026-01-01 12:00:00' AS string) AS t, current_timezone() AS z"
)
spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
print("=", frame.collect())
