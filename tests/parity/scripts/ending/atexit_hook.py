# A hook at the end.
import atexit

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
atexit.register(lambda: print("= at the end"))
print("=", spark.range(2).count())
