# The working directory is the script's to write to; os.chdir moves it.
import os

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
os.makedirs("below", exist_ok=True)
os.chdir("below")
with open("here.txt", "w") as file:
    file.write(f"{spark.range(3).count()} rows\n")
print("=", os.listdir("."))
