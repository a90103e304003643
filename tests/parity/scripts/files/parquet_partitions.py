# Partitioned files, and only one partition read.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
rows = spark.createDataFrame([(1, "x"), (2, "y"), (3, "x")], "n int, part string")
rows.write.mode("overwrite").partitionBy("part").parquet("partitioned")
found = spark.read.parquet("partitioned").where("part = 'x'")
print("=", sorted(row.n for row in found.collect()), len(found.inputFiles()) > 0)
