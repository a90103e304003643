"""The configured addresses of managers, and the choice among them by a master's URL.

Pure. It goes to the program that runs spark-submit as JSON, so it holds addresses and the names of
files, and never what stands in these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from common.spark_config import SparkConfig, addresses
from worker.spark.managers.tags import ruler

_MASTER_PAGE_PORT: Final = 8080


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerSettings:
    """The addresses of managers. Nothing given means that there are none."""

    yarn_urls: tuple[str, ...] = ()
    """Of one cluster: any that is not the active ResourceManager is passed over."""
    yarn_log_url: str = ""
    """The log server, which has the logs that log aggregation has moved."""
    standalone_urls: tuple[str, ...] = ()
    """Pages of Masters, of one cluster or of several."""
    kubernetes_url: str = ""
    kubernetes_token_file: str = ""
    kubernetes_ca_file: str = ""
    kubernetes_namespaces: tuple[str, ...] = ("default",)
    history_url: str = ""

    @classmethod
    def of(cls, spark: SparkConfig) -> ManagerSettings:
        """From the section `[spark]`."""
        return cls(
            yarn_urls=addresses(spark.yarn_urls),
            yarn_log_url=spark.yarn_log_url.rstrip("/"),
            standalone_urls=addresses(spark.standalone_urls),
            kubernetes_url=spark.kubernetes_url.rstrip("/"),
            kubernetes_token_file=spark.kubernetes_token_file,
            kubernetes_ca_file=spark.kubernetes_ca_file,
            kubernetes_namespaces=addresses(spark.kubernetes_namespace) or ("default",),
            history_url=spark.history_url.rstrip("/"),
        )

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> ManagerSettings:
        """From what `to_document` made."""
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in document.items()
        }
        return cls(**values)

    def to_document(self) -> dict[str, Any]:
        """For a job, as JSON."""
        return asdict(self)

    @property
    def is_empty(self) -> bool:
        """True if there is nobody to ask but those that a master's URL itself names."""
        return not (self.yarn_urls or self.standalone_urls or self.kubernetes_url)

    def what_is_missing(self, master: str) -> str:
        """The key that has to be set before applications of a master can be followed; "" if none.

        Asked of a master that `ruler` knows.
        """
        match ruler(master):
            case "yarn" if not self.yarn_urls:
                return "spark.yarn_urls"
            case "kubernetes" if not self._is_our_kubernetes(master):
                return "spark.kubernetes_url"
            case _:
                return ""

    def standalone_pages(self, master: str) -> tuple[str, ...]:
        """The Masters' pages of a `spark://` URL: those configured for it, or else as Spark's are.

        Pages on the master's own hosts come first; if there are any, no others are asked.
        """
        hosts = masters_hosts(master)
        near = tuple(url for url in self.standalone_urls if urlsplit(url).hostname in hosts)
        if near or self.standalone_urls:
            return near or self.standalone_urls
        return tuple(f"http://{_in_url(host)}:{_MASTER_PAGE_PORT}" for host in hosts)

    def _is_our_kubernetes(self, master: str) -> bool:
        # The token goes to the server that the operator named, and to no other.
        return bool(self.kubernetes_url) and _origin(self.kubernetes_url) == _origin(
            kubernetes_server(master)
        )


def masters_hosts(master: str) -> tuple[str, ...]:
    """The hosts in `spark://a:7077,b:7077`."""
    return tuple(host for host, _ in _addresses(master))


def is_page_of(master: str, page: str, says: str) -> bool:
    """True if a Master's page, which says `says` of itself, is of this `spark://` URL.

    A Master may call itself by a name that nobody else uses: then a page on the master's own host
    counts, unless it says by such a host's name that it is of another port.
    """
    meant = set(_addresses(master))
    said = set(_addresses(says))
    hosts = {host for host, _ in meant}
    if said & meant:
        return True
    return urlsplit(page).hostname in hosts and not any(host in hosts for host, _ in said)


def kubernetes_server(master: str) -> str:
    """The API server's URL in `k8s://https://host:6443` or `k8s://host:6443`."""
    server = master.removeprefix("k8s://")
    return server if "://" in server else f"https://{server}"


def _addresses(master: str) -> Iterator[tuple[str, int | None]]:
    for each in master.removeprefix("spark://").split(","):
        try:
            parts = urlsplit(f"//{each}")
            host, port = parts.hostname, parts.port
        except ValueError:
            continue
        if host:
            yield host, port


def _origin(url: str) -> tuple[str, str | None, int | None]:
    try:
        parts = urlsplit(url)
        port = parts.port or {"https": 443, "http": 80}.get(parts.scheme)
    except ValueError:
        return "", None, None
    return parts.scheme, parts.hostname, port


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
