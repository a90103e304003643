# A package in a zip file, by addPyFile, imported on the driver.
import zipfile

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
with zipfile.ZipFile("tools.zip", "w") as archive:
    archive.writestr("tools/__init__.py", "def plus(n):\n    return n + 1\n")
spark.sparkContext.addPyFile("tools.zip")
import tools

print("=", spark.sparkContext.parallelize([1, 2]).map(tools.plus).collect())
