# A query that fails ends the script by the exception of awaitTermination.
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

spark = SparkSession.builder.getOrCreate()
spark.range(2).write.mode("overwrite").parquet("failing_source")
broken = udf(lambda n: 1 // 0, "long")
stream = spark.readStream.schema("id long").parquet("failing_source").select(broken("id"))
query = stream.writeStream.format("noop").trigger(availableNow=True).start()
try:
    query.awaitTermination()
    print("= ended")
except StreamingQueryException as error:
    print("=", "ZeroDivisionError" in str(error))
