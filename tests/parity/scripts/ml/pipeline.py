# A pipeline of an indexer, an assembler and a tree, with its predictions.
from pyspark.ml import Pipeline
from pyspark.ml.classification import DecisionTreeClassifier
from pyspark.ml.feature import StringIndexer, VectorAssembler
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
rows = spark.createDataFrame(
    [("red", 1.0, 0.0), ("blue", 9.0, 1.0), ("red", 2.0, 0.0), ("blue", 8.0, 1.0)],
    ["colour", "size", "label"],
)
pipeline = Pipeline(
    stages=[
        StringIndexer(inputCol="colour", outputCol="code"),
        VectorAssembler(inputCols=["code", "size"], outputCol="features"),
        DecisionTreeClassifier(labelCol="label", seed=1),
    ]
)
model = pipeline.fit(rows)
model.transform(rows).select("colour", "size", "prediction").orderBy("size").show()
