# A cached frame keeps its rows when the files below it are replaced.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.range(3).write.mode("overwrite").csv("cache_source")
cached = spark.read.schema("id int").csv("cache_source").cache()
print("=", cached.count())
with open("cache_source/more.csv", "w") as file:
    file.write("77\n")
print("=", cached.count(), spark.read.schema("id int").csv("cache_source").where("id = 77").count())
