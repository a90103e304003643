# An error in the function ends the script.
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

spark = SparkSession.builder.getOrCreate()
inverse = udf(lambda n: 1 / n, "double")
print("= before")
spark.range(3).select(inverse("id")).collect()
print("= never")
