# A listener counts the events of queries.
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQueryListener

spark = SparkSession.builder.getOrCreate()
seen = []


class Listener(StreamingQueryListener):
    def onQueryStarted(self, event):
        seen.append("started")

    def onQueryProgress(self, event):
        pass

    def onQueryIdle(self, event):
        pass

    def onQueryTerminated(self, event):
        seen.append("terminated")


spark.streams.addListener(Listener())
spark.range(2).write.mode("overwrite").parquet("listened_source")
stream = spark.readStream.schema("id long").parquet("listened_source")
stream.writeStream.format("noop").trigger(availableNow=True).start().awaitTermination()
print("=", seen[:1])
