# From Spark's frame to pandas on Spark and back.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
frame = spark.range(4).pandas_api()
frame["twice"] = frame["id"] * 2
frame.to_spark().orderBy("id").show()
