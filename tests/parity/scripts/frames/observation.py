# Observed metrics of a write.
from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.builder.getOrCreate()
seen = Observation("rows")
spark.range(8).observe(seen, F.count(F.lit(1)).alias("n"), F.max("id").alias("top")).write.mode(
    "overwrite"
).format("noop").save()
print("=", seen.get)
