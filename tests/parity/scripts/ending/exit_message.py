# sys.exit with a message.
import sys

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
if spark.range(3).count() != 4:
    print("= wrong")
    sys.exit("rows are missing")
