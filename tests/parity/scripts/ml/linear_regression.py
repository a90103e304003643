# Linear regression of points on a line.
from pyspark.ml.feature import VectorAssembler
from pyspark.ml.regression import LinearRegression
from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("line").getOrCreate()
points = spark.createDataFrame([(float(x), 2.0 * x + 1.0) for x in range(6)], ["x", "y"])
features = VectorAssembler(inputCols=["x"], outputCol="features").transform(points)
model = LinearRegression(labelCol="y").fit(features)
print("=", round(model.coefficients[0], 3), round(model.intercept, 3))
