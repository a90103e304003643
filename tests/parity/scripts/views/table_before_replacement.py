# spark.table keeps the view that it found.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.createDataFrame([("old",)], ["state"]).createOrReplaceTempView("states")
before = spark.table("states")
spark.createDataFrame([("new",)], ["state"]).createOrReplaceTempView("states")
after = spark.table("states")
print("=", before.union(after).collect())
