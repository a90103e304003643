# Files as a stream, counted into a table in memory.
import os

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
os.makedirs("stream_in", exist_ok=True)
with open("stream_in/a.csv", "w") as file:
    file.write("1,a\n2,b\n3,a\n")
lines = spark.readStream.schema("id int, k string").csv("stream_in")
query = (
    lines.groupBy("k")
    .count()
    .writeStream.format("memory")
    .queryName("counts")
    .outputMode("complete")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
spark.table("counts").orderBy("k").show()
