# Frames with different numbers of columns.
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
a, b = spark.range(1), spark.range(1).selectExpr("id", "id AS other")
try:
    a.union(b)
    print("= joined")
except AnalysisException as error:
    print("=", error.getCondition())
