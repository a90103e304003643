# CREATE OR REPLACE TEMP VIEW, one on the other, and one of them replaced.
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.sql("CREATE OR REPLACE TEMP VIEW base AS SELECT 1 AS n")
spark.sql("CREATE OR REPLACE TEMP VIEW above AS SELECT n * 10 AS n FROM base")
first = spark.sql("SELECT n FROM above")
spark.sql("CREATE OR REPLACE TEMP VIEW base AS SELECT 2 AS n")
print("=", first.collect(), spark.sql("SELECT n FROM above").collect())
