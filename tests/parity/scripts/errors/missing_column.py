# A missing column ends the script at the line that selects it.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
frame = spark.range(3)
print("= before")
wrong = frame.select("price")
print("= never")
wrong.show()
