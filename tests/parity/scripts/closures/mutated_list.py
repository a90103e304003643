# A list that the function closes over grows after the frame was created.
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

spark = SparkSession.builder.getOrCreate()
banned = ["a"]
is_banned = udf(lambda word: word in banned, "boolean")
frame = spark.createDataFrame([("a",), ("b",)], ["w"]).where(~is_banned("w"))
banned.append("b")
print("=", [row.w for row in frame.collect()])
