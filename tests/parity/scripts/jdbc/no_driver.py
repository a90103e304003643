# A missing JDBC driver.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
print("= before")
frame = (
    spark.read.format("jdbc")
    .option("url", "jdbc:postgresql://127.0.0.1:1/x")
    .option("driver", "org.postgresql.Driver")
    .option("dbtable", "t")
    .load()
)
print("= never")
frame.show()
