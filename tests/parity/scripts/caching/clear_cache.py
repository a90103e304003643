# clearCache removes all cached tables and frames.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.range(3).createOrReplaceTempView("three")
spark.catalog.cacheTable("three")
frame = spark.range(4).cache()
frame.count()
spark.catalog.clearCache()
print("=", spark.catalog.isCached("three"), frame.storageLevel.useMemory)
