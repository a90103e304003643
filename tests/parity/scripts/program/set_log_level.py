# setLogLevel of the context.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
print("=", spark.range(2).count())
