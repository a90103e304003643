# A cached frame is computed once: an accumulator counts the calls.
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

spark = SparkSession.builder.getOrCreate()
calls = spark.sparkContext.accumulator(0)


@udf("long")
def slow(n):
    calls.add(1)
    return n + 1


frame = spark.range(6).select(slow("id").alias("x")).cache()
frame.count()
frame.collect()
print("=", calls.value)
