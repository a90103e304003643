# show in its variants.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
frame = spark.createDataFrame(
    [(1, "a long text that is cut off somewhere"), (2, None)], ["id", "text"]
).coalesce(1)
frame.show()
frame.show(1, truncate=10)
frame.show(truncate=False)
spark.range(0).show()
