# has_column by try and except, a common answer.
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()


def has_column(frame, name):
    try:
        frame[name]
        return True
    except AnalysisException:
        return False


frame = spark.createDataFrame([(1, ("x",))], "id int, place struct<city: string>")
print("=", [has_column(frame, name) for name in ("id", "price", "place.country")])
