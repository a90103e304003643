# A static setting on the builder.
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.config("spark.sql.extensions", "")
    .config("spark.sql.warehouse.dir", "own-warehouse")
    .getOrCreate()
)
print("=", spark.conf.get("spark.sql.warehouse.dir").rstrip("/").endswith("own-warehouse"))
