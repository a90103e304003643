# spark.stop() at the end, and a line after it.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
print("=", spark.range(5).count())
spark.stop()
print("= after the stop")
