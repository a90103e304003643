# From a frame to an RDD and back.
from pyspark.sql import Row, SparkSession

spark = SparkSession.builder.getOrCreate()
frame = spark.range(3).withColumnRenamed("id", "n")
squares = frame.rdd.map(lambda row: Row(n=row.n, square=row.n**2)).toDF()
squares.orderBy("n").show()
