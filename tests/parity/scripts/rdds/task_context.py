# The task's context inside a function.
from pyspark import SparkContext, TaskContext

sc = SparkContext.getOrCreate()
ids = sc.parallelize(range(3), 3).map(lambda n: (n, TaskContext.get().partitionId())).collect()
print("=", ids)
