# toPandas and createDataFrame from pandas.
import pandas as pd
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
frame = spark.range(3).selectExpr("id", "concat('n', id) AS name").toPandas()
print("=", frame.sort_values("id").to_dict("records"))
print("=", spark.createDataFrame(pd.DataFrame({"x": [1.5, 2.5]})).agg({"x": "sum"}).first()[0])
