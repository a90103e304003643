# A file that pandas has written is read by pandas on Spark.
import pandas as pd
import pyspark.pandas as ps

pd.DataFrame({"city": ["Oslo", "Rome"], "n": [3, 4]}).to_csv("cities.csv", index=False)
frame = ps.read_csv("cities.csv")
print("=", sorted(frame["city"].to_numpy().tolist()), int(frame["n"].sum()))
