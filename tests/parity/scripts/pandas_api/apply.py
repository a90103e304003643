# apply with a function of pandas.
import pyspark.pandas as ps

series = ps.Series([1, 2, 3])


def squared(n) -> int:
    return n * n


print("=", series.apply(squared).sort_index().tolist())
