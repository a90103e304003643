# Rows: by name, by position, as a dictionary.
from pyspark.sql import Row, SparkSession

spark = SparkSession.builder.getOrCreate()
Person = Row("name", "age")
row = spark.createDataFrame([Person("ada", 36)]).first()
print("=", row.name, row["age"], row.asDict(), row == Row(name="ada", age=36))
