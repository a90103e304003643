# toArrow, and mapInArrow.
import pyarrow as pa
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()


def keep_even(batches):
    for batch in batches:
        table = pa.Table.from_batches([batch])
        even = [n for n in table["id"].to_pylist() if n % 2 == 0]
        yield pa.RecordBatch.from_pydict({"id": even})


print("=", spark.range(3).toArrow().num_rows)
print("=", sorted(row.id for row in spark.range(6).mapInArrow(keep_even, "id long").collect()))
