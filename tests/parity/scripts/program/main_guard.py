# The usual frame of a program.
from pyspark.sql import SparkSession


def main():
    spark = SparkSession.builder.appName("main").getOrCreate()
    print("=", spark.range(3).count())


if __name__ == "__main__":
    main()
