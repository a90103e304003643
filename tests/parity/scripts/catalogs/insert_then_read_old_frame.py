# A frame of a table that is overwritten after the frame was created.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.range(3).write.mode("overwrite").format("parquet").saveAsTable("parity_growing")
frame = spark.table("parity_growing")
print("=", frame.count())
spark.range(10, 12).write.insertInto("parity_growing")
print("=", frame.count(), spark.table("parity_growing").count())
spark.sql("DROP TABLE parity_growing")
