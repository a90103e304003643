# Inner, left and full joins of two small frames.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
people = spark.createDataFrame([(1, "ada"), (2, "alan"), (3, "grace")], ["id", "name"])
cities = spark.createDataFrame([(1, "London"), (3, "New York"), (4, "Paris")], ["id", "city"])
people.join(cities, "id").orderBy("id").show()
people.join(cities, "id", "left").orderBy("id").show()
people.join(cities, "id", "full").orderBy("id").show()
