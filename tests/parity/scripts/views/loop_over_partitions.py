# One query a day over a view whose contents change from day to day.
from functools import reduce

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark = SparkSession.builder.getOrCreate()
days = {"2026-01-01": 3, "2026-01-02": 5, "2026-01-03": 8}
parts = []
for day, count in days.items():
    spark.range(count).withColumn("day", F.lit(day)).createOrReplaceTempView("today")
    parts.append(spark.sql("SELECT day, count(*) AS n FROM today GROUP BY day"))
reduce(lambda a, b: a.unionByName(b), parts).orderBy("day").show()
