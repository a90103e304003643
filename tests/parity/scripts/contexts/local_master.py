# A master in the script, as in tutorials.
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[2]").appName("tutorial").getOrCreate()
print("=", spark.range(10).count(), spark.sparkContext.master)
spark.stop()
