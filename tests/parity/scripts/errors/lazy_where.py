# A condition on a missing column is caught at its line.
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
frame = spark.range(3)
try:
    frame = frame.where("price > 3")
    print("= accepted")
except AnalysisException:
    print("= refused")
print("=", frame.count())
