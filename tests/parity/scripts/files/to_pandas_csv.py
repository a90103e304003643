# The report at the end: a small frame as one file, by pandas.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
report = spark.range(3).selectExpr("id", "id * id AS square").orderBy("id").toPandas()
report.to_csv("report.csv", index=False)
print("=", len(report))
