# An Iceberg catalog without its package.
from pyspark.sql import SparkSession

spark = SparkSession.builder.config(
    "spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog"
).getOrCreate()
print("= before")
spark.sql("SELECT * FROM lake.db.t").show()
print("= never")
