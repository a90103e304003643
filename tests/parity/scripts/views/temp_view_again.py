# createTempView refuses a name that is taken.
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.range(2).createTempView("pairs")
try:
    spark.range(3).createTempView("pairs")
    print("= replaced")
except AnalysisException as error:
    print("=", error.getCondition())
print("=", spark.table("pairs").count())
