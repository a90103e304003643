# The number of partitions after a shuffle, without adaptive execution.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.conf.set("spark.sql.adaptive.enabled", "false")
spark.conf.set("spark.sql.shuffle.partitions", "5")
counted = spark.range(100).groupBy("id").count()
print("=", counted.rdd.getNumPartitions())
