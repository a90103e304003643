# A helper reuses one view name, and the two results are joined.
from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("reused name").getOrCreate()


def doubled(values):
    spark.createDataFrame([(v,) for v in values], "v int").createOrReplaceTempView("input")
    return spark.sql("SELECT max(v) AS v FROM input")


small = doubled([1, 10]).withColumnRenamed("v", "w")
large = doubled([5, 99])
print("=", small.crossJoin(large).select("w", "v").collect())
