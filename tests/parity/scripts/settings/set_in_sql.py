# SET in SQL, and RESET.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.sql("SET spark.sql.shuffle.partitions = 11")
print("=", spark.conf.get("spark.sql.shuffle.partitions"))
spark.sql("SET my.own.key = some text")
print("=", spark.sql("SET my.own.key").first()["value"])
spark.conf.unset("my.own.key")
print("=", spark.conf.get("my.own.key", "gone"))
