# A checkpoint in a folder next to the script's other files.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.sparkContext.setCheckpointDir("checkpoint")
frame = spark.range(5).selectExpr("id * 2 AS id").checkpoint()
print("=", sorted(row.id for row in frame.collect()))
