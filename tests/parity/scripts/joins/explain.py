# explain prints the plan.
import contextlib
import io

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
text = io.StringIO()
with contextlib.redirect_stdout(text):
    spark.range(10).where("id > 3").explain()
print("=", "== Physical Plan ==" in text.getvalue(), "Range" in text.getvalue())
