# The console sink prints the batch.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.range(1, 3).coalesce(1).write.mode("overwrite").parquet("console_source")
stream = spark.readStream.schema("id long").parquet("console_source")
stream.writeStream.format("console").trigger(availableNow=True).start().awaitTermination()
print("= done")
