# A session as a context manager.
from pyspark.sql import SparkSession

with SparkSession.builder.getOrCreate() as spark:
    print("=", spark.range(3).count())
print("= after")
