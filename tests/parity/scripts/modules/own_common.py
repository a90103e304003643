# A module with a common name next to the script.
import common
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
print("=", common.GREETING, spark.range(1).count())
