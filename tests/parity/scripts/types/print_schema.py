# printSchema of nested types.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
frame = spark.createDataFrame(
    [], "id bigint NOT NULL, tags array<string>, place struct<city: string, zip: int>"
)
frame.printSchema()
print("=", frame.schema.simpleString())
