# The date parser's policy, set after the frame.
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark = SparkSession.builder.getOrCreate()
spark.conf.set("spark.sql.ansi.enabled", "false")
frame = spark.createDataFrame([("2026-1-5",)], ["d"]).select(
    F.to_date("d", "yyyy-MM-dd").alias("d")
)
spark.conf.set("spark.sql.legacy.timeParserPolicy", "LEGACY")
try:
    print("=", frame.collect())
except PySparkException as error:
    print("=", error.getCondition())
