# Two databases with a table of one name; the current one changes between the frames.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
for name in ("parity_d1", "parity_d2"):
    spark.sql(f"CREATE DATABASE IF NOT EXISTS {name}")
    spark.sql(f"USE {name}")
    spark.createDataFrame([(name,)], ["place"]).write.mode("overwrite").saveAsTable("t")
spark.sql("USE parity_d1")
a = spark.table("t")
spark.sql("USE parity_d2")
b = spark.table("t")
print("=", a.first()["place"], b.first()["place"])
