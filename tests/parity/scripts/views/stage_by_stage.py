# Each stage reads the view that the stage before it has put under the same name.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.range(3, 4).createOrReplaceTempView("stage")
frames = []
for _ in range(3):
    x = spark.sql("SELECT id + 1 AS id FROM stage")
    x.createOrReplaceTempView("stage")
    frames.append(x)
print("=", [frame.first()["id"] for frame in frames])
