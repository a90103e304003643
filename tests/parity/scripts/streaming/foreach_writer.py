# foreach writes a file for each row.
import os

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
folder = os.path.abspath("rows")
os.makedirs(folder, exist_ok=True)


def write(row):
    with open(f"{folder}/{row.id}.txt", "w") as file:
        file.write(f"row {row.id}\n")


spark.range(3).write.mode("overwrite").parquet("writer_source")
stream = spark.readStream.schema("id long").parquet("writer_source")
stream.writeStream.foreach(write).option("checkpointLocation", "checkpoint").trigger(
    availableNow=True
).start().awaitTermination()
print("=", sorted(os.listdir(folder)))
