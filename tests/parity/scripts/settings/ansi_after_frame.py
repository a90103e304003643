# ANSI mode is switched off after the frame was created.
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.conf.set("spark.sql.ansi.enabled", "true")
frame = spark.sql("SELECT cast('x' AS int) AS n")
spark.conf.set("spark.sql.ansi.enabled", "false")
try:
    print("=", frame.collect())
except PySparkException as error:
    print("=", error.getCondition())
