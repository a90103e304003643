# Parameters by name and by position.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
print("=", spark.sql("SELECT :a + :b AS s", args={"a": 1, "b": 2}).first().s)
print("=", spark.sql("SELECT ? || ? AS s", args=["x", "y"]).first().s)
print(
    "=",
    spark.sql("SELECT count(*) AS n FROM {frame} WHERE id > {least}", frame=spark.range(5), least=2)
    .first()
    .n,
)
