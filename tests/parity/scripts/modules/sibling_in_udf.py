# A function of a module next to the script, used on the executors.
from letters import vowels
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

spark = SparkSession.builder.getOrCreate()
counted = udf(lambda text: vowels(text), "int")
print("=", spark.createDataFrame([("queue",)], ["t"]).select(counted("t")).first()[0])
