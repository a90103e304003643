# The versions agree.
import pyspark
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
print("=", spark.version == pyspark.__version__, spark.version.startswith("4."))
