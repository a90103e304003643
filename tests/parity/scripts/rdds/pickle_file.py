# saveAsPickleFile and pickleFile.
from pyspark import SparkContext

sc = SparkContext.getOrCreate()
sc.parallelize([{"n": 1}, {"n": 2}], 1).saveAsPickleFile("pickled")
print("=", sorted(row["n"] for row in sc.pickleFile("pickled").collect()))
