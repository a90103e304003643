# A file that is sent with addFile.
from pyspark import SparkContext, SparkFiles

sc = SparkContext.getOrCreate()
with open("numbers.txt", "w") as file:
    file.write("5\n")
sc.addFile("numbers.txt")


def added(n):
    with open(SparkFiles.get("numbers.txt")) as file:
        return n + int(file.read())


print("=", sc.parallelize([1, 2]).map(added).collect())
