# A managed table: written, added to, read, dropped.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
orders = spark.createDataFrame([(1, "a"), (2, "b")], "id int, name string")
orders.write.mode("overwrite").saveAsTable("parity_orders")
orders.selectExpr("id + 10 AS id", "name").write.insertInto("parity_orders")
spark.table("parity_orders").orderBy("id").show()
spark.sql("DROP TABLE parity_orders")
print("=", spark.catalog.tableExists("parity_orders"))
