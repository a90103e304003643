# A function that returns functions.
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

spark = SparkSession.builder.getOrCreate()


def plus(n):
    return udf(lambda x: x + n, "long")


row = spark.range(1).select(*(plus(n)("id").alias(f"p{n}") for n in (1, 2, 3))).first()
print("=", row)
