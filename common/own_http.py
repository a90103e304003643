"""HTTP requests to a program of this account on this computer.

Another account may listen at the port before that program does, or after it has closed the port.
Each connection is checked before a request, which may hold a token, is sent. Proxies of the
environment are ignored, because the program is on this computer.
"""

from __future__ import annotations

import http.client
import os
import urllib.request
from typing import Final

from common.ports import check_server


class _Connection(http.client.HTTPConnection):
    def connect(self) -> None:
        super().connect()
        try:
            check_server(self.sock, os.geteuid(), "the requested page")
        except OSError:
            self.close()
            raise


class _Handler(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Connection, req)


OPENER: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}), _Handler)
