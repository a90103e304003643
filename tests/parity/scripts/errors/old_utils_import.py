# AnalysisException from the module that old scripts import it from.
from pyspark.sql import SparkSession
from pyspark.sql.utils import AnalysisException

spark = SparkSession.builder.getOrCreate()
try:
    spark.sql("SELECT no_such_column")
    print("= resolved")
except AnalysisException as error:
    print("=", "UNRESOLVED_COLUMN" in str(error))
