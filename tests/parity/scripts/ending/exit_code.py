# sys.exit with a number.
import sys

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
rows = spark.range(3).count()
print("=", rows)
sys.exit(rows)
