# needs: org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0
# An Iceberg table in a Hadoop catalog.
import os

from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
    .config("spark.sql.catalog.lake.type", "hadoop")
    .config("spark.sql.catalog.lake.warehouse", os.path.abspath("lake"))
    .getOrCreate()
)
spark.sql("CREATE TABLE lake.db.numbers (n BIGINT) USING iceberg")
spark.range(4).selectExpr("id AS n").writeTo("lake.db.numbers").append()
print("=", spark.table("lake.db.numbers").count(), spark.table("lake.db.numbers.snapshots").count())
