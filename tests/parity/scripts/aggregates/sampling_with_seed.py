# The same seed splits a frame in the same way.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
numbers = spark.range(0, 1000, 1, 2)
print("=", [part.count() for part in numbers.randomSplit([0.5, 0.5], seed=3)])
