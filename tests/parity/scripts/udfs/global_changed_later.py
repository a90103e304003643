# A global that the function reads changes between the definition and the action.
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

spark = SparkSession.builder.getOrCreate()
rate = 2


@udf("long")
def priced(n):
    return n * rate


first = spark.range(1, 3).select(priced("id").alias("p"))
rate = 5
second = spark.range(1, 3).select(priced("id").alias("p"))
print("=", sorted(r.p for r in first.collect()), sorted(r.p for r in second.collect()))
