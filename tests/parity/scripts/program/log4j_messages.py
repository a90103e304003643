# A message through log4j.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
log4j = spark.sparkContext._jvm.org.apache.log4j
log4j.LogManager.getLogger("job").warn("from java")
print("= logged")
