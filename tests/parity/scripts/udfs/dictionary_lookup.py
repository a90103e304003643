# A dictionary that the function closes over is filled again later.
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

spark = SparkSession.builder.getOrCreate()
names = {1: "one"}
named = udf(lambda n: names.get(n, "?"), "string")
first = spark.range(1, 3).select(named("id").alias("n"))
print("=", [row.n for row in first.orderBy("id").collect()])
names[2] = "two"
again = spark.range(1, 3).select("id", named("id").alias("n")).orderBy("id")
print("=", [row.n for row in again.collect()])
