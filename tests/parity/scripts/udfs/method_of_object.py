# A bound method as a function, and its object changed afterwards.
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

spark = SparkSession.builder.getOrCreate()


class Scale:
    def __init__(self, factor):
        self.factor = factor

    def of(self, n):
        return n * self.factor


scale = Scale(3)
tripled = udf(scale.of, "long")
frame = spark.range(1, 4).select(tripled("id").alias("x"))
scale.factor = 7
print("=", sorted(row.x for row in frame.collect()))
