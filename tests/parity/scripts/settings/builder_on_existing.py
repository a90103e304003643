# A second builder gives the same session, with its settings added.
from pyspark.sql import SparkSession

first = SparkSession.builder.appName("one").getOrCreate()
second = SparkSession.builder.config("spark.sql.shuffle.partitions", "9").getOrCreate()
print("=", first is second or first.conf.get("spark.sql.shuffle.partitions") == "9")
print("=", second.conf.get("spark.sql.shuffle.partitions"))
