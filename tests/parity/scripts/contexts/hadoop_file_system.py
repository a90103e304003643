# Hadoop's file system, to see whether a path is there.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
sc = spark.sparkContext
fs = sc._jvm.org.apache.hadoop.fs.FileSystem.get(sc._jsc.hadoopConfiguration())
path = sc._jvm.org.apache.hadoop.fs.Path
spark.range(1).write.mode("overwrite").csv("checked")
print("=", fs.exists(path("checked/_SUCCESS")), fs.exists(path("no_such_folder")))
