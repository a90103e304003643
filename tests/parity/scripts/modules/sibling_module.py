# A module next to the script.
import letters
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
print("=", letters.vowels("parity"), spark.range(1).count())
