# A function of series.
import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.functions import pandas_udf

spark = SparkSession.builder.getOrCreate()


@pandas_udf("double")
def half(n: pd.Series) -> pd.Series:
    return n / 2


spark.range(4).select(half("id").alias("h")).orderBy("h").show()
