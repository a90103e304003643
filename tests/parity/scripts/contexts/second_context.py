# A second context is refused.
from pyspark import SparkContext

sc = SparkContext("local[1]", "first")
try:
    SparkContext("local[1]", "second")
    print("= second")
except ValueError as error:
    print("=", "Cannot run multiple SparkContexts at once" in str(error))
