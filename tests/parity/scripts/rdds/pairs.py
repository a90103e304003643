# Keys and values: group, join, cogroup, fold.
from pyspark import SparkContext

sc = SparkContext.getOrCreate()
a = sc.parallelize([("x", 1), ("y", 2), ("x", 3)])
b = sc.parallelize([("x", "p"), ("z", "q")])
print("=", sorted((k, sorted(v)) for k, v in a.groupByKey().collect()))
print("=", sorted(a.join(b).collect()), sorted(a.leftOuterJoin(b).collect()))
print("=", sorted(a.foldByKey(0, lambda m, n: m + n).collect()), a.countByKey()["x"])
