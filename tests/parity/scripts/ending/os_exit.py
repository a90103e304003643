# os._exit, past all clean-up.
import os
import sys

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
print("=", spark.range(2).count())
sys.stdout.flush()
os._exit(7)
