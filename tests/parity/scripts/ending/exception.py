# An uncaught exception, and a finally block that prints.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
try:
    raise ValueError("no good")
finally:
    print("= finally", spark.range(2).count())
