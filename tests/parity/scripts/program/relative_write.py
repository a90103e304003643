# Rows are written below the working directory.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
frame = spark.createDataFrame([(1, "a"), (2, "b")], ["id", "name"])
frame.coalesce(1).write.mode("overwrite").csv("out/relative_write", header=True)
frame.coalesce(1).write.mode("overwrite").parquet("out/relative_parquet")
print("= written")
