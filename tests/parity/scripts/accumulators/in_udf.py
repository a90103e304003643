# An accumulator in a function of a frame.
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

spark = SparkSession.builder.getOrCreate()
nulls = spark.sparkContext.accumulator(0)


@udf("int")
def size(text):
    if text is None:
        nulls.add(1)
        return 0
    return len(text)


frame = spark.createDataFrame([("ab",), (None,), ("c",)], "t string")
print("=", [row[0] for row in frame.coalesce(1).select(size("t")).collect()], nulls.value)
