# mapPartitions, glom, repartition.
from pyspark import SparkContext

sc = SparkContext.getOrCreate()
rdd = sc.parallelize(range(8), 4)
print("=", rdd.getNumPartitions(), rdd.glom().collect())
print("=", rdd.mapPartitions(lambda part: [sum(part)]).collect())
print(
    "=",
    rdd.coalesce(2).glom().map(len).collect(),
    rdd.mapPartitionsWithIndex(lambda i, p: [(i, len(list(p)))]).collect(),
)
