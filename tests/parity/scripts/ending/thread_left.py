# A daemon thread that still waits at the end.
import threading

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
threading.Thread(target=threading.Event().wait, daemon=True).start()
print("=", spark.range(2).count())
