# textFile and saveAsTextFile with relative paths.
from pyspark import SparkContext

sc = SparkContext.getOrCreate()
with open("lines.txt", "w") as file:
    file.write("b\na\nc\n")
sc.textFile("lines.txt", 1).map(str.upper).sortBy(
    lambda line: line, numPartitions=1
).saveAsTextFile("upper")
print("=", sc.textFile("upper").collect())
