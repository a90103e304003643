# repartition by a column, coalesce, sortWithinPartitions.
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark = SparkSession.builder.getOrCreate()
frame = spark.range(20).repartition(3, "id").withColumn("p", F.spark_partition_id())
print(
    "=",
    frame.select("p").distinct().count(),
    frame.coalesce(1).select(F.spark_partition_id()).distinct().count(),
)
