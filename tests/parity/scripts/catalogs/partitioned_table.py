# A partitioned table and a dynamic overwrite of one partition.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
rows = spark.createDataFrame([(1, "x"), (2, "x"), (3, "y")], "n int, part string")
rows.write.mode("overwrite").partitionBy("part").saveAsTable("parity_parts")
spark.createDataFrame([(9, "x")], "n int, part string").write.mode("overwrite").insertInto(
    "parity_parts"
)
spark.table("parity_parts").orderBy("part", "n").show()
spark.sql("SHOW PARTITIONS parity_parts").show()
spark.sql("DROP TABLE parity_parts")
