# Frames of lists, dictionaries, pandas and ranges.
import pandas as pd
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
print("=", spark.createDataFrame([{"a": 1, "b": "x"}]).collect())
print(
    "=", spark.createDataFrame([(1,), (2,)]).columns, spark.createDataFrame([1, 2], "int").columns
)
print("=", spark.createDataFrame(pd.DataFrame({"z": [True]})).dtypes)
