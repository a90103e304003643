# A Java error is caught as Py4JJavaError.
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext

sc = SparkContext.getOrCreate()
try:
    sc.textFile("no_such_file.txt").count()
    print("= read")
except Py4JJavaError as error:
    print("=", "Input path does not exist" in str(error.java_exception))
