# A cached frame, its storage level, and its end.
from pyspark import StorageLevel
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
frame = spark.range(100).selectExpr("id", "id % 3 AS k").persist(StorageLevel.MEMORY_AND_DISK)
print("=", frame.count(), frame.is_cached, frame.storageLevel.useMemory, frame.storageLevel.useDisk)
frame.unpersist()
print("=", frame.is_cached)
