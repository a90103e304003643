# A session variable changes after the frame was created.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.sql("DECLARE OR REPLACE VARIABLE bound INT DEFAULT 3")
frame = spark.sql("SELECT count(*) AS n FROM range(10) WHERE id >= bound")
spark.sql("SET VAR bound = 8")
print("=", frame.first().n)
