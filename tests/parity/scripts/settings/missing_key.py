# A key that does not exist.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
print("=", spark.conf.get("spark.no.such.setting", "default"))
try:
    spark.conf.get("spark.no.such.setting")
    print("= found")
except Exception as error:
    print("=", "spark.no.such.setting" in str(error))
