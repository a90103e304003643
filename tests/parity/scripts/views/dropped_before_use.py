# A view is dropped before the frame that reads it is used.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.range(5).createOrReplaceTempView("numbers")
even = spark.sql("SELECT id FROM numbers WHERE id % 2 = 0")
spark.catalog.dropTempView("numbers")
print("=", sorted(row.id for row in even.collect()))
