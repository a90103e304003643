# The name of the file that a row came from.
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark = SparkSession.builder.getOrCreate()
with open("named_in.txt", "w") as file:
    file.write("x\n")
frame = spark.read.text("named_in.txt").withColumn(
    "file", F.element_at(F.split(F.input_file_name(), "/"), -1)
)
print("=", frame.collect())
