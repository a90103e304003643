# A frame is joined with a frame made from it.
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark = SparkSession.builder.getOrCreate()
sales = spark.createDataFrame([("a", 1), ("a", 3), ("b", 5)], ["shop", "n"])
totals = sales.groupBy("shop").agg(F.sum("n").alias("total"))
shares = sales.join(totals, sales.shop == totals.shop).select(
    sales.shop, "n", (F.col("n") / F.col("total")).alias("share")
)
shares.orderBy("shop", "n").show()
