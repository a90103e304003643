# Java through the gateway.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
jvm = spark.sparkContext._jvm
print("=", jvm.java.lang.Math.max(3, 4), jvm.java.util.Locale.ROOT.toString() == "")
