# pandas on Spark: a frame, a group, a sort.
import pyspark.pandas as ps

frame = ps.DataFrame({"k": ["a", "b", "a"], "n": [1, 2, 3]})
print("=", frame.groupby("k")["n"].sum().sort_index().to_dict())
print("=", frame.shape, list(frame.columns))
