"""A spark-submit that brings an application into a fake manager, and lives as the real one does.

It takes the real one's arguments, and its orders from settings: `spark.fake.url` names the manager;
`before` and `after` are seconds around the submission, in client mode `runs` those that the driver
works, `exit` is its exit code, `stubborn` makes it ignore TERM. It submits nothing before there is a
file at `gate`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time

MARK = "spark-submit was started"


def main() -> None:
    print(MARK, flush=True)
    words = sys.argv[1:]
    conf = {}
    # Each start takes the time of what it imports, and tests start hundreds.
    with open(value(words, "--properties-file")) as file:  # noqa: PTH123
        for line in file:
            key, _, text = line.rstrip("\n").partition(" = ")
            conf[key] = text
    if conf.get("spark.fake.stubborn"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    in_cluster = "cluster" in words
    time.sleep(float(conf.get("spark.fake.before", 0)))
    while (gate := conf.get("spark.fake.gate")) and not os.path.exists(gate):  # noqa: PTH110
        time.sleep(0.02)
    labels = {
        key.removeprefix("spark.kubernetes.driver.label."): text
        for key, text in conf.items()
        if key.startswith("spark.kubernetes.driver.label.")
    }
    about = {
        "tags": conf.get("spark.yarn.tags", ""),
        "labels": labels,
        "attempt": conf.get("spark.orcaflow.attempt", ""),
        "name": (conf.get("spark.app.name") or value(words, "--name")).replace(" ", "-"),
    }
    made = post(conf, "submit", about)
    print("the application is there", made.get("id", ""), flush=True)
    time.sleep(float(conf.get("spark.fake.after", 0)))
    code = int(conf.get("spark.fake.exit", 0))
    if not in_cluster:
        time.sleep(float(conf.get("spark.fake.runs", 0)))
        print(conf.get("spark.fake.says", ""), flush=True)
        post(conf, "end", made)
    sys.exit(code)


def value(words: list[str], option: str) -> str:
    return words[words.index(option) + 1]


def post(conf: dict[str, str], what: str, about: object) -> dict[str, str]:
    host, _, port = conf["spark.fake.url"].rpartition("/")[2].partition(":")
    body = json.dumps(about).encode()
    head = f"POST /fake/{what} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection((host, int(port))) as link:
        link.sendall(head.encode() + body)
        with link.makefile("rb") as answer:
            status = answer.readline()
            length = 0
            while line := answer.readline().strip():
                name, _, text = line.partition(b":")
                length = int(text) if name == b"Content-Length" else length
            found = answer.read(length)
    if b" 200 " not in status:
        sys.exit("the manager does not take it")
    made: dict[str, str] = json.loads(found)
    return made


if __name__ == "__main__":
    main()
