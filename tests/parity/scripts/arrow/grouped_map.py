# applyInPandas: a frame of each group.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()


def centred(group):
    return group.assign(v=group.v - group.v.mean())


rows = spark.createDataFrame([("a", 1.0), ("a", 3.0), ("b", 5.0)], ["k", "v"])
rows.groupBy("k").applyInPandas(centred, "k string, v double").orderBy("k", "v").show()
