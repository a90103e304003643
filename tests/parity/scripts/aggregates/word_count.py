# Word count with frames.
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark = SparkSession.builder.appName("word count").getOrCreate()
with open("word_count.txt", "w") as file:
    file.write("to be or not to be\nthat is the question\n")
lines = spark.read.text("word_count.txt")
words = lines.select(F.explode(F.split("value", " ")).alias("word"))
words.groupBy("word").count().orderBy(F.desc("count"), "word").show()
