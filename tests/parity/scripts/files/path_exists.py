# The output path exists, and the mode is the default.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.range(1).write.mode("overwrite").csv("twice_written")
print("= once")
spark.range(1).write.csv("twice_written")
print("= never")
