# Case sensitivity switched on between two frames.
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
people = spark.createDataFrame([("ada", 1)], ["Name", "id"])
found = people.select("name")
spark.conf.set("spark.sql.caseSensitive", "true")
try:
    people.select("name").collect()
    print("= found")
except AnalysisException as error:
    print("=", error.getCondition())
print("=", found.collect())
