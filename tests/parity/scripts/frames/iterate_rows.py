# toLocalIterator, foreachPartition, take, head, isEmpty.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
frame = spark.range(5)
print(
    "=",
    [row.id for row in frame.toLocalIterator()],
    frame.take(2),
    frame.head().id,
    frame.isEmpty(),
)
frame.foreachPartition(lambda rows: list(rows))
