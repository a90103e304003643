# An error in a task of an RDD ends the script.
from pyspark import SparkContext

sc = SparkContext.getOrCreate()
print("= before")
print("= never", sc.parallelize([1, 0]).map(lambda n: 1 // n).collect())
