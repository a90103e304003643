# A decorated function with a declared type, and NULL.
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, udf
from pyspark.sql.types import StringType

spark = SparkSession.builder.getOrCreate()


@udf(returnType=StringType())
def initials(name):
    return None if name is None else "".join(part[0] for part in name.split())


people = spark.createDataFrame([("Ada Lovelace",), (None,), ("Alan M Turing",)], ["name"])
people.select("name", initials(col("name")).alias("short")).orderBy("name").show(truncate=False)
