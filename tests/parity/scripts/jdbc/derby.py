# A table in a database, by the driver that Spark brings.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
url = "jdbc:derby:memory:parity_derby;create=true"
rows = spark.createDataFrame([(1, "a"), (2, "b")], "id int, name string")
rows.write.jdbc(
    url,
    "letters",
    mode="overwrite",
    properties={"driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver"},
)
found = spark.read.jdbc(
    url, "letters", properties={"driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver"}
)
print("=", sorted(tuple(row) for row in found.collect()))
