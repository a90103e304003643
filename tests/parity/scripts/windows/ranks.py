# rank, dense_rank and row_number.
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F

spark = SparkSession.builder.getOrCreate()
marks = spark.createDataFrame([("a", 9), ("b", 9), ("c", 7), ("d", 5)], ["name", "mark"])
by_mark = Window.orderBy(F.desc("mark"))
marks.select(
    "name", F.rank().over(by_mark).alias("r"), F.dense_rank().over(by_mark).alias("d")
).orderBy("name").show()
