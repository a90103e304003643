# Word count with RDDs.
from pyspark import SparkContext

sc = SparkContext(appName="word count")
lines = sc.parallelize(["to be or not", "to be"])
counts = lines.flatMap(str.split).map(lambda word: (word, 1)).reduceByKey(lambda a, b: a + b)
for word, n in sorted(counts.collect()):
    print("=", word, n)
sc.stop()
