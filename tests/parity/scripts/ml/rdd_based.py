# The RDD-based library.
from pyspark import SparkContext
from pyspark.mllib.linalg import Vectors
from pyspark.mllib.stat import Statistics

sc = SparkContext.getOrCreate()
summary = Statistics.colStats(
    sc.parallelize([Vectors.dense([1.0, 10.0]), Vectors.dense([3.0, 30.0])])
)
print("=", [float(x) for x in summary.mean()], summary.count())
