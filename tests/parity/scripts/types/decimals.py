# Decimals keep their digits.
from decimal import Decimal

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
frame = spark.createDataFrame([(Decimal("1.10"),), (Decimal("2.25"),)], "d decimal(10,2)")
print(
    "=",
    frame.agg({"d": "sum"}).first()[0],
    frame.selectExpr("d * d").schema[0].dataType.simpleString(),
)
