# A stream into files, run twice: the second run finds nothing new.
import os

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
os.makedirs("sink_in", exist_ok=True)
for number in (1, 2):
    with open(f"sink_in/{number}.json", "w") as file:
        file.write('{"id": %d}\n' % number)
for _ in range(2):
    stream = spark.readStream.schema("id int").json("sink_in")
    query = (
        stream.coalesce(1)
        .writeStream.format("json")
        .option("path", "sink_out")
        .option("checkpointLocation", "checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print("=", sorted(row.id for row in spark.read.json("sink_out").collect()))
