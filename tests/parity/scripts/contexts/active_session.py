# The active session is the script's.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
print("=", SparkSession.getActiveSession() is not None)
spark.range(1).createOrReplaceTempView("here")
print("=", SparkSession.builder.getOrCreate().catalog.tableExists("here"))
