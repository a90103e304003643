# Delta without its package.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
print("= before")
spark.range(1).write.format("delta").save("delta_table")
print("= never")
