# applyInPandasWithState: a state for each key.
import os

import pandas as pd
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
os.makedirs("state_in", exist_ok=True)
with open("state_in/a.csv", "w") as file:
    file.write("a,1\nb,2\na,3\n")


def total(key, batches, state):
    so_far = (state.get[0] if state.exists else 0) + sum(int(batch.n.sum()) for batch in batches)
    state.update((so_far,))
    yield pd.DataFrame({"k": [key[0]], "n": [so_far]})


stream = spark.readStream.schema("k string, n int").csv("state_in").groupBy("k")
sums = stream.applyInPandasWithState(total, "k string, n long", "n long", "update", "NoTimeout")
sums.writeStream.format("memory").queryName("totals").outputMode("update").trigger(
    availableNow=True
).start().awaitTermination()
spark.table("totals").orderBy("k").show()
