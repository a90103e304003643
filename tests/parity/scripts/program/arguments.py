# arguments: --day 2026-01-02 --limit 2 north south
# argparse, with options and names.
import argparse

from pyspark.sql import SparkSession

parser = argparse.ArgumentParser()
parser.add_argument("--day", required=True)
parser.add_argument("--limit", type=int, default=10)
parser.add_argument("regions", nargs="*")
given = parser.parse_args()
spark = SparkSession.builder.getOrCreate()
print("=", given.day, given.regions, spark.range(5).limit(given.limit).count())
