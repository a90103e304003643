# What Spark has written, Python reads.
import glob

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.range(3).coalesce(1).write.mode("overwrite").json("round_trip")
lines = [line for path in glob.glob("round_trip/*.json") for line in open(path)]
print("=", [line.strip() for line in lines])
