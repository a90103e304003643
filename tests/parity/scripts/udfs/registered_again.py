# A name is registered again after a frame has used it.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.udf.register("label", lambda n: f"a{n}", "string")
first = spark.sql("SELECT label(1) AS x")
spark.udf.register("label", lambda n: f"b{n}", "string")
second = spark.sql("SELECT label(1) AS x")
print("=", first.collect(), second.collect())
