# A failed assertion.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
frame = spark.range(3)
print("= before")
assert frame.count() == 4, "there should be four"
print("= never")
