# A broadcast value in a function of a frame.
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

spark = SparkSession.builder.getOrCreate()
rates = spark.sparkContext.broadcast({"EUR": 1.0, "USD": 0.9})
in_euro = udf(lambda amount, currency: amount * rates.value[currency], "double")
frame = spark.createDataFrame([(10.0, "EUR"), (10.0, "USD")], ["amount", "currency"])
frame.select("currency", in_euro("amount", "currency").alias("euro")).orderBy("currency").show()
