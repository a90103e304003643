# The four modes of writing.
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.range(2).write.parquet("modes")
try:
    spark.range(2).write.parquet("modes")
    print("= written")
except AnalysisException as error:
    print("=", error.getCondition())
spark.range(3).write.mode("ignore").parquet("modes")
spark.range(4).write.mode("append").parquet("modes")
print("=", spark.read.parquet("modes").count())
spark.range(1).write.mode("overwrite").parquet("modes")
print("=", spark.read.parquet("modes").count())
