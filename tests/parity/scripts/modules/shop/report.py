from pyspark.sql import functions as F

from .prices import PRICES


def total(orders):
    price = F.create_map(*[F.lit(each) for pair in PRICES.items() for each in pair])
    return orders.select(F.sum(F.col("n") * price[F.col("item")])).first()[0]
