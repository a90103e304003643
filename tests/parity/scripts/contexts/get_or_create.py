# SparkContext.getOrCreate gives the same context each time.
from pyspark import SparkContext

sc = SparkContext.getOrCreate()
print("=", sc is SparkContext.getOrCreate(), sc.parallelize([1, 2]).sum())
