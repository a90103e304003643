# Job groups and descriptions.
from pyspark import SparkContext

sc = SparkContext.getOrCreate()
sc.setJobGroup("g1", "a group")
print("=", sc.parallelize(range(4)).count(), sc.getLocalProperty("spark.jobGroup.id"))
print("=", len(sc.statusTracker().getJobIdsForGroup("g1")) > 0)
