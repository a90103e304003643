# Settings of the builder are there in the session.
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.appName("configured")
    .config("spark.sql.shuffle.partitions", "3")
    .config("spark.sql.session.timeZone", "America/New_York")
    .getOrCreate()
)
print(
    "=",
    spark.conf.get("spark.sql.shuffle.partitions"),
    spark.conf.get("spark.sql.session.timeZone"),
)
print("=", spark.sql("SELECT current_timezone()").first()[0])
