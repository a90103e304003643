# Views, a join and an aggregate in SQL.
from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("sales").getOrCreate()
spark.createDataFrame(
    [(1, "tea", 3), (2, "tea", 4), (3, "jam", 5)], "id int, item string, amount int"
).createOrReplaceTempView("orders")
spark.createDataFrame(
    [("tea", 2.5), ("jam", 4.0)], "item string, price double"
).createOrReplaceTempView("prices")
spark.sql("""
    SELECT o.item, sum(o.amount * p.price) AS paid
    FROM orders o JOIN prices p ON o.item = p.item
    GROUP BY o.item ORDER BY o.item
""").show()
