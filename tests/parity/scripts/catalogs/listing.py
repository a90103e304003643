# Databases, tables and columns, as the catalog lists them.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.sql("CREATE DATABASE IF NOT EXISTS parity_listing COMMENT 'for a list'")
spark.catalog.setCurrentDatabase("parity_listing")
spark.range(3).write.mode("overwrite").saveAsTable("threes")
spark.range(2).createOrReplaceTempView("a_view")
print("=", spark.catalog.currentDatabase(), spark.catalog.databaseExists("parity_listing"))
print("=", sorted((t.name, t.tableType, t.isTemporary) for t in spark.catalog.listTables()))
print("=", [(c.name, c.dataType) for c in spark.catalog.listColumns("threes")])
