# SQL that cannot be parsed.
from pyspark.errors import ParseException
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
try:
    spark.sql("SELEC 1")
    print("= parsed")
except ParseException as error:
    print("=", error.getCondition())
