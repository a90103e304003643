# Logging to standard error, and a session below it.
import logging

from pyspark.sql import SparkSession

logging.basicConfig(level=logging.INFO, format="! %(levelname)s %(name)s %(message)s")
logging.getLogger("py4j").setLevel(logging.WARNING)
log = logging.getLogger("job")
spark = SparkSession.builder.getOrCreate()
log.info("started")
log.warning("rows: %d", spark.range(4).count())
log.debug("never shown")
