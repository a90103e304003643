# mapInPandas with a value from outside that changes afterwards.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
offset = 100


def shift(batches):
    for batch in batches:
        yield batch.assign(id=batch.id + offset)


frame = spark.range(3).mapInPandas(shift, "id long")
offset = 500
print("=", sorted(row.id for row in frame.collect()))
