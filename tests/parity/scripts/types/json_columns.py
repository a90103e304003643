# from_json, to_json, get_json_object, variants.
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark = SparkSession.builder.getOrCreate()
frame = spark.createDataFrame([('{"a": 1, "b": {"c": "x"}}',)], ["j"])
row = frame.select(
    F.from_json("j", "a int").alias("p"),
    F.get_json_object("j", "$.b.c"),
    F.to_json(F.struct(F.lit(2).alias("n"))),
).first()
print("=", row.p.a, row[1], row[2])
print("=", frame.select(F.variant_get(F.parse_json("j"), "$.a", "int")).first()[0])
