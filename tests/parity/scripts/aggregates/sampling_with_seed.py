# The same seed gives the same rows.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
numbers = spark.range(0, 1000, 1, 2)
print(
    "=",
    numbers.sample(0.1, seed=7).count(),
    [p.count() for p in numbers.randomSplit([0.5, 0.5], seed=3)],
)
