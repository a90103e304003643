# Logging to a file next to the script's other files.
import logging

from pyspark.sql import SparkSession

handler = logging.FileHandler("job_log.txt", mode="w")
handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
log = logging.getLogger("job")
log.addHandler(handler)
log.setLevel(logging.INFO)
spark = SparkSession.builder.getOrCreate()
log.info("rows %d", spark.range(4).count())
