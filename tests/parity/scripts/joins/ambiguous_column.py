# A column that both sides have.
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
a = spark.createDataFrame([(1, "x")], ["id", "v"])
b = spark.createDataFrame([(1, "y")], ["id", "v"])
joined = a.join(b, a.id == b.id)
try:
    joined.select("v")
    print("= selected")
except AnalysisException as error:
    print("=", error.getCondition())
print("=", joined.select(a.v, b.v).collect())
