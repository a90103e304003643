# A common mistake: executors cannot change a list of the driver.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
seen = []


def note(row):
    seen.append(row.id)


spark.range(5).foreach(note)
print("=", len(seen))
