# Employees and their managers, by aliases of one frame.
from pyspark.sql import SparkSession
from pyspark.sql.functions import col

spark = SparkSession.builder.getOrCreate()
staff = spark.createDataFrame(
    [(1, "ada", None), (2, "bob", 1), (3, "cid", 2)], "id int, name string, boss int"
)
e, m = staff.alias("e"), staff.alias("m")
joined = e.join(m, col("e.boss") == col("m.id"), "left")
joined.select(col("e.name"), col("m.name").alias("boss")).orderBy("e.name").show()
