# A lookup table is broadcast once.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
names = spark.sparkContext.broadcast({"de": "Germany", "pe": "Peru"})
codes = spark.sparkContext.parallelize(["de", "pe", "xx"])
print("=", codes.map(lambda code: names.value.get(code, "?")).collect())
names.unpersist()
