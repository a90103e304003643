# A pivot table.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
sales = spark.createDataFrame(
    [("a", "q1", 1), ("a", "q2", 2), ("b", "q1", 3)], ["shop", "quarter", "n"]
)
sales.groupBy("shop").pivot("quarter").sum("n").orderBy("shop").show()
sales.groupBy("shop").pivot("quarter", ["q1"]).sum("n").orderBy("shop").show()
