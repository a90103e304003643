# A running total a day.
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F

spark = SparkSession.builder.getOrCreate()
days = spark.createDataFrame([(1, 10), (2, 20), (3, 5), (4, 1)], ["day", "n"])
so_far = Window.orderBy("day").rowsBetween(Window.unboundedPreceding, Window.currentRow)
days.withColumn("total", F.sum("n").over(so_far)).orderBy("day").show()
