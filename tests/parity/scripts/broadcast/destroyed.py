# A destroyed broadcast value cannot be used.
from pyspark.sql import SparkSession

sc = SparkSession.builder.getOrCreate().sparkContext
value = sc.broadcast([1, 2, 3])
print("=", sc.parallelize([0, 2]).map(lambda n: value.value[n]).collect())
value.destroy()
try:
    sc.parallelize([0]).map(lambda n: value.value[n]).collect()
    print("= used")
except Exception as error:
    print("=", type(error).__name__)
