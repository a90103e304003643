# A random column keeps its values within a frame that is cached.
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark = SparkSession.builder.getOrCreate()
frame = spark.range(20).withColumn("r", F.rand(seed=5)).cache()
print("=", frame.agg(F.round(F.sum("r"), 6)).first() == frame.agg(F.round(F.sum("r"), 6)).first())
