# foreachBatch writes each batch, and prints its number of rows.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.range(6).write.mode("overwrite").parquet("batch_source")
stream = spark.readStream.schema("id long").parquet("batch_source")


def save(batch, number):
    print("= batch", number, batch.count())
    batch.write.mode("append").json("batch_sink")


query = (
    stream.writeStream.foreachBatch(save)
    .option("checkpointLocation", "checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
print("=", spark.read.json("batch_sink").count())
