# A child process prints too.
import subprocess
import sys

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
sys.stdout.flush()
subprocess.run([sys.executable, "-c", "print('= from a child')"], check=True)
print("=", spark.range(1).count())
