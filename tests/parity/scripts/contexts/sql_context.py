# SQLContext, as in older scripts.
import warnings

from pyspark import SparkContext
from pyspark.sql import SQLContext

warnings.simplefilter("ignore")
sc = SparkContext.getOrCreate()
sql = SQLContext(sc)
sql.createDataFrame([(1,), (2,)], ["n"]).createOrReplaceTempView("t")
print("=", sql.sql("SELECT sum(n) AS s FROM t").first().s)
