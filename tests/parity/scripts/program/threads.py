# Jobs from several threads.
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
with ThreadPoolExecutor(3) as pool:
    print("=", list(pool.map(lambda n: spark.range(n).count(), (1, 2, 3))))
