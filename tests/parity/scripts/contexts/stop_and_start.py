# A session is stopped, and another one is created.
from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("one").getOrCreate()
print("=", spark.range(2).count())
spark.stop()
spark = SparkSession.builder.appName("two").getOrCreate()
print("=", spark.range(3).count())
spark.stop()
