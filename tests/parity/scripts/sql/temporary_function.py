# A function in SQL.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.sql("CREATE OR REPLACE TEMPORARY FUNCTION area(w INT, h INT) RETURNS INT RETURN w * h")
print("=", spark.sql("SELECT area(3, 4) AS a").first().a)
