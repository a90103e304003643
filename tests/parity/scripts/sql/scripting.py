# A SQL script with a loop.
from pyspark.sql import SparkSession

spark = SparkSession.builder.config("spark.sql.scripting.enabled", "true").getOrCreate()
print(
    "=",
    spark.sql("""
    BEGIN
      DECLARE n INT DEFAULT 1;
      WHILE n < 50 DO SET n = n * 3; END WHILE;
      SELECT n AS n;
    END
""")
    .first()
    .n,
)
