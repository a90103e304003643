# A function that SQL calls by its name.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.udf.register("cube", lambda n: n**3, "long")
spark.range(4).createOrReplaceTempView("n")
spark.sql("SELECT id, cube(id) AS c FROM n ORDER BY id").show()
