# A partitioned Hive table with dynamic partitions.
from pyspark.sql import SparkSession

spark = SparkSession.builder.enableHiveSupport().getOrCreate()
spark.sql("SET hive.exec.dynamic.partition.mode = nonstrict")
spark.sql("DROP TABLE IF EXISTS parity_hive_parts")
spark.sql("CREATE TABLE parity_hive_parts (n INT) PARTITIONED BY (part STRING) STORED AS TEXTFILE")
spark.sql("INSERT INTO parity_hive_parts PARTITION (part) SELECT 1, 'x' UNION ALL SELECT 2, 'y'")
spark.sql("SHOW PARTITIONS parity_hive_parts").show()
print("=", spark.table("parity_hive_parts").where("part = 'y'").first().n)
spark.sql("DROP TABLE parity_hive_parts")
