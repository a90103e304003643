# The newest row of each key.
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F

spark = SparkSession.builder.getOrCreate()
rows = spark.createDataFrame(
    [("a", 1, "old"), ("a", 2, "new"), ("b", 1, "only")], ["k", "version", "v"]
)
newest = Window.partitionBy("k").orderBy(F.col("version").desc())
rows.withColumn("n", F.row_number().over(newest)).where("n = 1").drop("n").orderBy("k").show()
