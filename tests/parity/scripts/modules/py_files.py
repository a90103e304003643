# py-files: letters.py
# A module that was submitted next to the script, used by a function.
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

spark = SparkSession.builder.getOrCreate()


@udf("int")
def vowels(text):
    from letters import vowels

    return vowels(text)


print("=", spark.createDataFrame([("aeon",)], ["t"]).select(vowels("t")).first()[0])
