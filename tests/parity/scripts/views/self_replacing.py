# The usual clean-up: read a view, change it, put it back under its name, a few times.
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark = SparkSession.builder.getOrCreate()
spark.createDataFrame([(" a ",), ("b",)], ["name"]).createOrReplaceTempView("people")
for change in (F.trim("name"), F.upper("name"), F.concat("name", F.lit("!"))):
    spark.table("people").withColumn("name", change).createOrReplaceTempView("people")
spark.table("people").orderBy("name").show()
