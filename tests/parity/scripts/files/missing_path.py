# A missing path ends the script at the line that reads it.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
print("= before")
frame = spark.read.parquet("no_such_folder")
print("= never")
frame.show()
