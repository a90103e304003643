# The parallelism of two cores.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
print("=", spark.sparkContext.defaultParallelism, spark.range(10).rdd.getNumPartitions())
