# The function of an RDD reads a global that changes between two jobs.
from pyspark import SparkContext

sc = SparkContext.getOrCreate()
factor = 2
doubled = sc.parallelize([1, 2, 3]).map(lambda n: n * factor)
print("=", doubled.collect())
factor = 10
print("=", doubled.collect())
