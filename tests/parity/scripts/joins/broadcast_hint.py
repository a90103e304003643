# A broadcast hint shows in the plan.
from pyspark.sql import SparkSession
from pyspark.sql.functions import broadcast

spark = SparkSession.builder.getOrCreate()
spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
spark.conf.set("spark.sql.adaptive.enabled", "false")
joined = spark.range(100).join(broadcast(spark.range(3)), "id")
print("=", joined.count())
plan = (
    spark.range(100)
    .join(broadcast(spark.range(3)), "id")
    ._jdf.queryExecution()
    .executedPlan()
    .toString()
)
print("=", "BroadcastHashJoin" in plan)
