# A global temporary view is seen by another session of the application.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.range(4).createOrReplaceGlobalTempView("parity_shared_numbers")
other = spark.newSession()
print("=", other.table("global_temp.parity_shared_numbers").count())
spark.catalog.dropGlobalTempView("parity_shared_numbers")
