# A package next to the script, with modules that import each other.
from shop import report
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
print("=", report.total(spark.createDataFrame([("tea", 2), ("jam", 3)], ["item", "n"])))
