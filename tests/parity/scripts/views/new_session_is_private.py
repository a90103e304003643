# A temporary view and a setting stay in their session.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.range(4).createOrReplaceTempView("mine")
spark.conf.set("spark.sql.shuffle.partitions", "7")
other = spark.newSession()
print("=", spark.catalog.tableExists("mine"), other.catalog.tableExists("mine"))
print("=", spark.conf.get("spark.sql.shuffle.partitions") == "7")
print("=", other.conf.get("spark.sql.shuffle.partitions") == "7")
