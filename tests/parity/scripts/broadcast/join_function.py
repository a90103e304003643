# The broadcast function of joins, which needs no context.
from pyspark.sql import SparkSession
from pyspark.sql.functions import broadcast

spark = SparkSession.builder.getOrCreate()
orders = spark.createDataFrame([(1, "de"), (2, "pe")], ["id", "code"])
names = spark.createDataFrame([("de", "Germany"), ("pe", "Peru")], ["code", "name"])
orders.join(broadcast(names), "code").select("id", "name").orderBy("id").show()
