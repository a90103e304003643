# SparkContext(conf=conf), and a session on it.
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

conf = SparkConf().setAppName("by conf").set("spark.sql.shuffle.partitions", "3")
sc = SparkContext(conf=conf)
spark = SparkSession(sc)
print("=", sc.appName, spark.conf.get("spark.sql.shuffle.partitions"), spark.range(3).count())
sc.stop()
