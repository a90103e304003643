# Tumbling windows over timestamps.
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark = SparkSession.builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
events = spark.createDataFrame(
    [("2026-01-01 10:01:00", 1), ("2026-01-01 10:04:00", 2), ("2026-01-01 10:06:00", 4)],
    ["at", "n"],
)
events = events.withColumn("at", F.to_timestamp("at"))
sums = events.groupBy(F.window("at", "5 minutes")).agg(F.sum("n").alias("n"))
sums.select("window.start", "n").orderBy("start").show()
