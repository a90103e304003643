# A Hive table, with an embedded metastore.
from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("hive").enableHiveSupport().getOrCreate()
spark.sql("DROP TABLE IF EXISTS parity_hive")
spark.sql("CREATE TABLE parity_hive (id INT, name STRING) STORED AS PARQUET")
spark.sql("INSERT INTO parity_hive VALUES (1, 'a'), (2, 'b')")
spark.table("parity_hive").orderBy("id").show()
spark.sql("DROP TABLE parity_hive")
