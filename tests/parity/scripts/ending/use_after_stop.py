# A session that is used after its end.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.stop()
print("= stopped")
spark.range(5).count()
print("= never")
