# A missing table is handled by try and except.
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
try:
    frame = spark.table("parity_no_such_table")
    print("= there")
except AnalysisException as error:
    frame = spark.createDataFrame([], "id int")
    print("=", error.getCondition())
print("=", frame.count())
