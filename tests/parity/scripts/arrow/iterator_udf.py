# An iterator of series, with one preparation for all batches.
from collections.abc import Iterator

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.functions import pandas_udf

spark = SparkSession.builder.getOrCreate()


@pandas_udf("long")
def plus_ten(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
    ten = 10
    for batch in batches:
        yield batch + ten


print("=", sorted(row.x for row in spark.range(3).select(plus_ten("id").alias("x")).collect()))
