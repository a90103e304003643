# A static setting cannot be changed in a session.
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
try:
    spark.conf.set("spark.sql.warehouse.dir", "elsewhere")
    print("= set")
except PySparkException as error:
    print("=", error.getCondition())
