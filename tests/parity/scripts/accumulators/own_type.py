# An accumulator with a custom type, a set.
from pyspark import AccumulatorParam, SparkContext

sc = SparkContext.getOrCreate()


class SetParam(AccumulatorParam):
    def zero(self, value):
        return set()

    def addInPlace(self, a, b):
        return a | (b if isinstance(b, set) else {b})


seen = sc.accumulator(set(), SetParam())
sc.parallelize([1, 2, 2, 3]).foreach(lambda n: seen.add(n % 2))
print("=", sorted(seen.value))
