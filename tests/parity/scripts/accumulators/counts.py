# An accumulator counts the bad lines.
from pyspark import SparkContext

sc = SparkContext.getOrCreate()
bad = sc.accumulator(0)


def number(text):
    try:
        return [int(text)]
    except ValueError:
        bad.add(1)
        return []


print("=", sc.parallelize(["1", "x", "3", "y"]).flatMap(number).collect(), bad.value)
