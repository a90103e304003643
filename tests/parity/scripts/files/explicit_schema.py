# An explicit schema, and a line that does not match it.
from pyspark.sql import SparkSession
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

spark = SparkSession.builder.getOrCreate()
with open("schema_in.csv", "w") as file:
    file.write("1,a\nx,b\n")
schema = StructType(
    [
        StructField("id", IntegerType()),
        StructField("name", StringType()),
        StructField("_corrupt_record", StringType()),
    ]
)
frame = (
    spark.read.schema(schema)
    .csv("schema_in.csv", mode="PERMISSIVE", columnNameOfCorruptRecord="_corrupt_record")
    .cache()
)
frame.orderBy("name").show()
