# needs: io.delta:delta-spark_2.13:4.0.0
# A Delta table: written, updated, read as it was.
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .getOrCreate()
)
spark.range(3).write.format("delta").mode("overwrite").save("delta_numbers")
spark.range(10, 12).write.format("delta").mode("append").save("delta_numbers")
print("=", spark.read.format("delta").load("delta_numbers").count())
print("=", spark.read.format("delta").option("versionAsOf", 0).load("delta_numbers").count())
