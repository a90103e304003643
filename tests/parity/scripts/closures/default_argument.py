# The common fix: bind the value as a default argument.
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

spark = SparkSession.builder.getOrCreate()
frame = spark.range(1, 2)
for factor in (1, 10, 100):
    frame = frame.withColumn(f"x{factor}", udf(lambda n, f=factor: n * f, "long")("id"))
print("=", frame.collect())
