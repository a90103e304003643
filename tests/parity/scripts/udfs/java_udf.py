# A Java function of Hive, by CREATE TEMPORARY FUNCTION.
from pyspark.sql import SparkSession

spark = SparkSession.builder.enableHiveSupport().getOrCreate()
spark.sql(
    "CREATE TEMPORARY FUNCTION twice AS 'org.apache.hadoop.hive.ql.udf.generic.GenericUDFConcat'"
)
print("=", spark.sql("SELECT twice('a', 'b') AS x").first().x)
