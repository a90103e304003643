# Filters that a loop collects, each with its own bound.
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

spark = SparkSession.builder.getOrCreate()
checks = []
for bound in (2, 5, 8):
    checks.append(udf(lambda n: n > bound, "boolean"))
print("=", [spark.range(10).where(check("id")).count() for check in checks])
