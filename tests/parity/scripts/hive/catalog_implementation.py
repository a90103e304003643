# enableHiveSupport selects the catalog.
from pyspark.sql import SparkSession

spark = SparkSession.builder.enableHiveSupport().getOrCreate()
print("=", spark.conf.get("spark.sql.catalogImplementation"))
