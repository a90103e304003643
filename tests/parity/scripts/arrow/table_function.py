# A table function in Python, called from SQL.
from pyspark.sql import SparkSession
from pyspark.sql.functions import udtf

spark = SparkSession.builder.getOrCreate()


@udtf(returnType="n int, square int")
class Squares:
    def eval(self, start: int, end: int):
        for n in range(start, end + 1):
            yield n, n * n


spark.udtf.register("squares", Squares)
spark.sql("SELECT * FROM squares(1, 3) ORDER BY n").show()
