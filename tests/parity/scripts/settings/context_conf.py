# Settings are read from the context too.
from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("read the conf").getOrCreate()
conf = spark.sparkContext.getConf()
print("=", conf.get("spark.app.name"), conf.get("no.such.key"), conf.contains("spark.master"))
