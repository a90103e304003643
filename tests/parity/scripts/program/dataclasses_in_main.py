# Classes of the script are used in its functions.
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf


@dataclass
class Point:
    x: int
    y: int

    @property
    def norm(self):
        return abs(self.x) + abs(self.y)


spark = SparkSession.builder.getOrCreate()
norm = udf(lambda x, y: Point(x, y).norm, "int")
frame = spark.createDataFrame([(1, -2), (3, 4)], "x int, y int")
print("=", sorted(row[0] for row in frame.select(norm("x", "y")).collect()))
