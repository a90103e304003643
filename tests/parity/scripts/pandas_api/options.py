# Options and operations between different frames.
import pyspark.pandas as ps

ps.set_option("compute.ops_on_diff_frames", True)
a, b = ps.Series([1, 2, 3]), ps.Series([10, 20, 30])
print("=", (a + b).sort_index().tolist())
ps.reset_option("compute.ops_on_diff_frames")
