# Ids for rows, and partitions.
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark = SparkSession.builder.getOrCreate()
frame = spark.range(0, 4, 1, 2).select(
    F.monotonically_increasing_id().alias("m"), F.spark_partition_id().alias("p")
)
print("=", sorted(tuple(row) for row in frame.collect()))
