# CACHE TABLE of a view.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.range(10).createOrReplaceTempView("ten")
spark.sql("CACHE TABLE ten")
print("=", spark.catalog.isCached("ten"))
spark.catalog.uncacheTable("ten")
print("=", spark.catalog.isCached("ten"))
