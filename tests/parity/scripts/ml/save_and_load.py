# A model is saved below the working directory and loaded again.
from pyspark.ml.feature import MinMaxScaler, MinMaxScalerModel, VectorAssembler
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
rows = VectorAssembler(inputCols=["id"], outputCol="v").transform(spark.range(5))
MinMaxScaler(inputCol="v", outputCol="scaled").fit(rows).write().overwrite().save("saved_model")
again = MinMaxScalerModel.load("saved_model")
print("=", [float(row.scaled[0]) for row in again.transform(rows).orderBy("id").collect()])
