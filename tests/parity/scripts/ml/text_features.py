# Tokens, stop words and counts.
from pyspark.ml.feature import CountVectorizer, StopWordsRemover, Tokenizer
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
texts = spark.createDataFrame([(0, "the cat sat on the cat"), (1, "a dog sat")], ["id", "text"])
tokens = Tokenizer(inputCol="text", outputCol="tokens").transform(texts)
words = StopWordsRemover(inputCol="tokens", outputCol="words").transform(tokens)
model = CountVectorizer(inputCol="words", outputCol="counts").fit(words)
print("=", sorted(model.vocabulary), [row.words for row in words.orderBy("id").collect()])
