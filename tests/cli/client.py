"""A client with one kept connection, and what it asks for."""

from __future__ import annotations

import http.client
from typing import NamedTuple
from urllib.parse import urlsplit

CONTENT = bytes(range(256)) * 40


class Answer(NamedTuple):
    """What a server said."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes


class Client:
    """One kept connection."""

    def __init__(self, url: str) -> None:
        self.connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=20)

    def __call__(self, path: str, method: str = "GET", **headers: str) -> Answer:
        """Ask for something, and read the answer whole."""
        self.connection.request(method, path, headers={k.replace("_", "-"): v for k, v in headers.items()})
        answer = self.connection.getresponse()
        return Answer(answer.status, answer.headers, answer.read())
