# A module that is created while the script runs, sent with addPyFile.
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

spark = SparkSession.builder.getOrCreate()
with open("made_here.py", "w") as file:
    file.write("def thrice(n):\n    return 3 * n\n")
spark.sparkContext.addPyFile("made_here.py")


@udf("long")
def thrice(n):
    import made_here

    return made_here.thrice(n)


print("=", sorted(row[0] for row in spark.range(3).select(thrice("id")).collect()))
