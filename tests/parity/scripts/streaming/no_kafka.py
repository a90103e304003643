# The Kafka source without its package.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
print("= before")
stream = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", "127.0.0.1:1")
    .option("subscribe", "t")
    .load()
)
print("= never", stream.isStreaming)
