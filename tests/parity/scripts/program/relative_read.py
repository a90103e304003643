# A file of Python's is read by Spark, by a relative path.
import csv

from pyspark.sql import SparkSession

with open("people_in.csv", "w", newline="") as file:
    csv.writer(file).writerows([["id", "name"], [1, "ada"], [2, "bob"]])
spark = SparkSession.builder.getOrCreate()
people = spark.read.csv("people_in.csv", header=True, inferSchema=True)
print("=", people.dtypes, sorted(row.name for row in people.collect()))
