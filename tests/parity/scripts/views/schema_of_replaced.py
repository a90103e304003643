# The columns of a frame stay, though its view is replaced by one with others.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.createDataFrame([(1, "a")], ["id", "name"]).createOrReplaceTempView("source")
frame = spark.table("source")
spark.createDataFrame([(2.0,)], ["price"]).createOrReplaceTempView("source")
print("=", frame.columns, frame.collect())
