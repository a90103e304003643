# A result of another type than the declared one is NULL.
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

spark = SparkSession.builder.getOrCreate()
text = udf(lambda n: str(n), "int")
print("=", spark.range(1).select(text("id").alias("t")).collect())
