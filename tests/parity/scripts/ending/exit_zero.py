# sys.exit(0) before the last line.
import sys

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
print("=", spark.range(3).count())
sys.exit(0)
print("= never")
