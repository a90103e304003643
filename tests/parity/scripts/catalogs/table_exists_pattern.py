# The create-if-missing pattern, twice.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
for run in range(2):
    if not spark.catalog.tableExists("parity_once"):
        print("= created in run", run)
        spark.range(2).write.saveAsTable("parity_once")
    spark.range(1).write.mode("append").saveAsTable("parity_once")
print("=", spark.table("parity_once").count())
spark.sql("DROP TABLE parity_once")
