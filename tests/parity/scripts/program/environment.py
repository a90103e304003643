# An environment variable that the script sets, seen by its functions.
import os

os.environ["PARITY_COLOUR"] = "green"
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

spark = SparkSession.builder.getOrCreate()
colour = udf(lambda: os.environ.get("PARITY_COLOUR", "none"))
print("=", os.environ["PARITY_COLOUR"], spark.range(1).select(colour()).first()[0])
