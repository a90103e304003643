"""The doors of a Spark driver on this computer, and what keeps other accounts out of them.

A driver listens for its executors (RPC, blocks) and, with a UI, for people. Whoever gets in could
run code as its account. So they want a secret of the driver's own (`spark.authenticate`), answer
this computer alone unless executors are elsewhere, and the UI offers no kill. The UI of a Connect
server, by which sessions are closed for sure, wants a *page token* instead: a JSON web token that
Spark's own filter checks. So does that of any other driver whose executors are all on this
computer. One with executors elsewhere is asked for its tag by workers that did not start it, and
has no token. Rules and values alone, standard library only.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Final

LOOPBACK: Final = "127.0.0.1"
LOCAL_ADDRESS: Final = "SPARK_LOCAL_IP"
"""The variable for the address that a driver's pages, and all else of it, listen at."""

_FILTERS: Final = "spark.ui.filters"
_FILTER: Final = "org.apache.spark.ui.JWSFilter"
PAGE_KEY: Final = f"spark.{_FILTER}.param.secretKey"
"""The setting with the key of the pages' tokens."""
_LIBRARIES: Final = ("jjwt-api", "jjwt-impl", "jjwt-jackson")
_MASTERS_OF_OWN_EXECUTORS: Final = re.compile(r"local(\[.*\])?|local-cluster\[.*\]|k8s://.*")


def is_local(master: str) -> bool:
    """True if no executor is elsewhere."""
    return master == "local" or master.startswith(("local[", "local-cluster["))


def settings(master: str) -> dict[str, str]:
    """Return the settings for the doors of a driver with this master; a site's own go before them.

    Spark makes a secret for each application where it starts the executors itself. A standalone
    cluster has one secret for all, and YARN's shuffle service has its own say: what these need is
    the site's to set.
    """
    return {
        **({"spark.authenticate": "true"} if _MASTERS_OF_OWN_EXECUTORS.fullmatch(master) else {}),
        **(
            {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
            if is_local(master)
            else {}
        ),
        "spark.ui.killEnabled": "false",
    }


def variables(master: str) -> dict[str, str]:
    """Return the variables by which the pages of such a driver are for this computer alone."""
    return {LOCAL_ADDRESS: LOOPBACK} if is_local(master) else {}


def can_guard_pages(home: str) -> bool:
    """True if an installation of Spark has the filter and its libraries."""
    jars = {each.name for each in Path(home, "jars").glob("*.jar")}
    return all(any(jar.startswith(f"{name}-") for jar in jars) for name in _LIBRARIES)


def page_settings(key: bytes) -> dict[str, str]:
    """Return the settings by which the pages want a token that was made with this key."""
    encoded = base64.urlsafe_b64encode(key).decode()
    return {_FILTERS: _FILTER, PAGE_KEY: encoded}


def guard(home: str, master: str, said: Container[str]) -> tuple[dict[str, str], str]:
    """Return settings that put a new token before a driver's pages, and the token.

    They are empty for a driver with executors elsewhere, for a Spark that knows no token, and where
    `said`, the names of what the site and the task set, has filters: `"spark.ui.filters": ""` opens
    the pages.
    """
    if not is_local(master) or _FILTERS in said or not can_guard_pages(home):
        return {}, ""
    # Imported here, as below.
    import secrets

    key = secrets.token_bytes(32)
    return page_settings(key), page_token(key)


def write_token(path: Path, token: str) -> None:
    """Leave the token for the people who may see the pages, in a new file of this account."""
    path.touch(mode=0o600, exist_ok=False)
    path.write_text(token, encoding="ascii")


def page_token(key: bytes) -> str:
    """Return a token for the pages, which is good as long as their server is there."""
    # Imported here: lint, which wants the settings alone, shall start fast.
    import hashlib
    import hmac

    head = _encoded(json.dumps({"alg": "HS256", "typ": "JWT"}).encode())
    said = _encoded(json.dumps({"sub": "orcaflow"}).encode())
    signature = hmac.new(key, f"{head}.{said}".encode(), hashlib.sha256).digest()
    return f"{head}.{said}.{_encoded(signature)}"


def headers(token: str) -> Mapping[str, str]:
    """Return the headers of a request for a page; "" is for pages that want no token."""
    return {"Authorization": f"Bearer {token}"} if token else {}


def _encoded(text: bytes) -> str:
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()
