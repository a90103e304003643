# An error in the function is caught as PythonException.
from pyspark.errors import PythonException
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

spark = SparkSession.builder.getOrCreate()
broken = udf(lambda n: {}[n], "long")
try:
    spark.range(1).select(broken("id")).collect()
except PythonException as error:
    print("=", "KeyError" in str(error))
