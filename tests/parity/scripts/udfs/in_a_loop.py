# UDFs are created in a loop, each with the loop's value.
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

spark = SparkSession.builder.getOrCreate()
frame = spark.range(1, 2)
for factor in (1, 10, 100):
    times = udf(lambda n: n * factor, "long")
    frame = frame.withColumn(f"x{factor}", times("id"))
print("=", frame.collect())
