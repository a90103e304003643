# needs: org.postgresql:postgresql:42.7.7
# arguments: {postgresql}
# Rows to PostgreSQL and back, with a query and partitions.
import sys

from pyspark.sql import SparkSession

url = sys.argv[1]
spark = SparkSession.builder.getOrCreate()
rows = spark.range(10).selectExpr("id", "concat('n', id) AS name")
options = {"driver": "org.postgresql.Driver"}
rows.write.mode("overwrite").jdbc(url, "parity_names", properties=options)
print(
    "=",
    spark.read.jdbc(url, "(SELECT max(id) AS top FROM parity_names) q", properties=options)
    .first()
    .top,
)
parts = spark.read.jdbc(
    url,
    "parity_names",
    column="id",
    lowerBound=0,
    upperBound=10,
    numPartitions=3,
    properties=options,
)
print("=", parts.rdd.getNumPartitions(), parts.where("id % 2 = 0").count())
