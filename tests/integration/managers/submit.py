"""A spark-submit that brings an application into a fake manager, and lives as the real one does.

It takes the real one's arguments, and its orders from settings: `spark.fake.url` names the manager;
`before` and `after` are seconds around the submission, in client mode `runs` those that the driver
works, `exit` is its exit code, `stubborn` makes it ignore TERM. It submits nothing before there is a
file at `gate`.
"""

from __future__ import annotations

import json
import signal
import sys
import time
import urllib.request
from pathlib import Path

MARK = "spark-submit was started"


def main() -> None:
    print(MARK, flush=True)
    words = sys.argv[1:]
    conf = {}
    for line in Path(value(words, "--properties-file")).read_text().splitlines():
        key, _, text = line.partition(" = ")
        conf[key] = text
    if conf.get("spark.fake.stubborn"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    in_cluster = "cluster" in words
    time.sleep(float(conf.get("spark.fake.before", 0)))
    while (gate := conf.get("spark.fake.gate")) and not Path(gate).exists():
        time.sleep(0.02)
    labels = {
        key.removeprefix("spark.kubernetes.driver.label."): text
        for key, text in conf.items()
        if key.startswith("spark.kubernetes.driver.label.")
    }
    about = {
        "tags": conf.get("spark.yarn.tags", ""),
        "labels": labels,
        "name": value(words, "--name").replace(" ", "-"),
    }
    made = post(conf, "submit", about)
    print("the application is there", flush=True)
    time.sleep(float(conf.get("spark.fake.after", 0)))
    code = int(conf.get("spark.fake.exit", 0))
    if not in_cluster:
        time.sleep(float(conf.get("spark.fake.runs", 0)))
        print(conf.get("spark.fake.says", ""), flush=True)
        post(conf, "end", made)
    sys.exit(code)


def value(words: list[str], option: str) -> str:
    return words[words.index(option) + 1]


def post(conf: dict[str, str], what: str, about: object) -> object:
    request = urllib.request.Request(
        f"{conf['spark.fake.url']}/fake/{what}", data=json.dumps(about).encode(), method="POST"
    )
    try:
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)
    except OSError:
        sys.exit("the manager does not take it")


if __name__ == "__main__":
    main()
