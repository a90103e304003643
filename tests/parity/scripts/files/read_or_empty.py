# The optional input: an empty frame if it is missing.
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
empty = spark.createDataFrame([], "id long")
try:
    history = spark.read.parquet("no_history_yet")
except AnalysisException:
    print("= no history")
    history = empty
print("=", history.union(spark.range(2)).count())
