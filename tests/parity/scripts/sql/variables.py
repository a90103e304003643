# Session variables and IDENTIFIER.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.sql("DECLARE OR REPLACE VARIABLE least INT DEFAULT 3")
spark.sql("SET VAR least = 7")
frame = spark.sql("SELECT count(*) AS n FROM range(10) WHERE id >= least")
spark.range(4).createOrReplaceTempView("four")
print("=", frame.first().n, spark.sql("SELECT count(*) FROM IDENTIFIER('fo' || 'ur')").first()[0])
