"""What makes two connections differ: the key under which easy handles are pooled.

This module owns `Origin` and the checking of its options.  `split` and `redact`, by which
URLs are read and shown, are re-exported from here.  It is pure: it opens nothing, looks
nothing up and does not know pycurl; how an origin's options reach a handle is the business
of ``_easy``.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias, cast

from ._urls import (
    CONTROL,
    SplitURL,
    base,
    bracketed,
    check_credential,
    cut,
    decode_userinfo,
    host_and_port,
    redact,
    refuse,
    split,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["HTTP_VERSIONS", "Credential", "Origin", "Secrets", "SplitURL", "redact", "split", "split_proxy"]

Credential: TypeAlias = tuple[str, str] | str
"""(user, password), or a bearer token."""

_Path: TypeAlias = str | os.PathLike[str]

HTTP_VERSIONS: Final = ("1.0", "1.1", "2", "2-prior-knowledge", "3")
#: Kinds of proxies that libcurl knows, with the port that it takes where none is given.
_PROXY_PORTS: Final = {
    "http": 1080,
    "https": 443,
    "socks4": 1080,
    "socks4a": 1080,
    "socks5": 1080,
    "socks5h": 1080,
}

_RESOLVE: Final = re.compile(r"(-[^:]+:[0-9]+|\+?[^:]+:[0-9]+:.+)\Z")

# Keys, their repr and whatever prints them hold a digest of the credential.  It is made with a
# key drawn for this process: a weak password cannot be guessed from a log by trying.
_DIGEST_KEY: Final = os.urandom(32)


def _digest(kind: str, *secrets: str) -> str:
    """Return a name for secrets: equal for equal ones within this process, and telling nothing of them."""
    digest = blake2b(key=_DIGEST_KEY, digest_size=12)
    for text in (kind, *secrets):
        data = text.encode()
        digest.update(len(data).to_bytes(8, "big") + data)  # lengths, so that ("ab", "c") isn't ("a", "bc")
    return f"{kind}:{digest.hexdigest()}"


def _digest_of(credential: Credential | None) -> str | None:
    if credential is None:
        return None
    return _digest("bearer", credential) if isinstance(credential, str) else _digest("basic", *credential)


@dataclass(frozen=True)
class Secrets:
    """The values of an origin that only a handle may see; shown and pickled as nothing."""

    credential: Credential | None = field(default=None, repr=False)
    proxy_credential: tuple[str, str] | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)

    def __copy__(self) -> Secrets:
        return self

    def __deepcopy__(self, memo: object) -> Secrets:
        return self

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("secrets are not pickled")


_NO_SECRETS: Final = Secrets()


@dataclass(frozen=True, kw_only=True, repr=False)
class Origin:
    """All that makes two connections differ: the key of the easy-handle pool.

    Made by `Origin.of`.  Two origins are equal exactly when a connection made for the one
    may serve the other.  Credentials are compared, hashed and shown as a digest that holds
    for this process only; their values never appear in a repr or a pickle.  An origin that
    came by pickle has lost them, and `secrets` says so.

    Immutable, so safe to share between threads.

    Attributes
    ----------
    scheme : str
        ``http`` or ``https``.
    host : str
        In lower case, IDNA-encoded; an IPv6 address without its brackets.
    port : int
        Never left out: ``http://h`` and ``http://h:80`` are one origin.
    proxy : str or None
        ``scheme://host:port``; "" for none at all, None for what the environment says.
    proxy_credential : str or None
        A digest.
    verify : bool
        Whether the server's certificate and name are checked.
    ca_bundle : str or None
        Path of the certificates trusted; None for the default ones.
    client_cert : tuple of str or None
        Path of the certificate, and of its key where that is another file.
    key_password : str or None
        A digest.
    resolve : tuple of str
        Name overrides, each ``HOST:PORT:ADDRESS``.
    http_version : str or None
        One of ``HTTP_VERSIONS``; None leaves it to libcurl.
    credential : str or None
        A digest.
    """

    scheme: str
    host: str
    port: int
    proxy: str | None = None
    proxy_credential: str | None = None
    verify: bool = True
    ca_bundle: str | None = None
    client_cert: tuple[str, ...] | None = None
    key_password: str | None = None
    resolve: tuple[str, ...] = ()
    http_version: str | None = None
    credential: str | None = None
    _secrets: Secrets = field(default=_NO_SECRETS, compare=False)

    def __post_init__(self) -> None:
        # For those who build or `replace` one by hand: what gets to a handle is what `split` would find.
        parts = split(f"{self.scheme}://{bracketed(self.host)}:{self.port}")
        if (parts.scheme, parts.host, parts.port) != (self.scheme, self.host, self.port):
            raise ValueError(f"an origin is {parts.url!r}, not {self.url!r}: make it with Origin.of")

    @classmethod
    def of(
        cls,
        url: str | SplitURL,
        *,
        proxy: str | None = None,
        verify: bool = True,
        ca_bundle: _Path | None = None,
        client_cert: _Path | tuple[_Path, ...] | None = None,
        resolve: Iterable[str] | None = None,
        http_version: str | None = None,
        credential: Credential | None = None,
    ) -> Origin:
        """Return the origin of a URL, with the options that a connection to it has.

        Parameters
        ----------
        url : str or SplitURL
            An http or https URL, or what `split` made of it; its path, query and fragment
            don't matter.  ``user:password@`` in it is the credential.
        proxy : str, optional
            ``[scheme://][user:password@]host[:port]``, the scheme one of http (the default),
            https, socks4, socks4a, socks5 and socks5h.  "" goes direct whatever the
            environment says; None leaves it to the environment (``https_proxy``, ``no_proxy``).
        verify : bool
            False takes any certificate: for tests.
        ca_bundle : str or path, optional
            A file of certificates to trust, instead of the default ones.
        client_cert : str or path, or a tuple, optional
            A certificate's file, or (certificate, key), or (certificate, key, password).
        resolve : iterable of str, optional
            ``HOST:PORT:ADDRESS[,ADDRESS]...``: addresses to take for a name, without asking.
        http_version : str, optional
            "1.0", "1.1", "2" (1.1 where the server has no 2), "2-prior-knowledge" or "3".
        credential : (str, str) or str, optional
            (user, password) for HTTP Basic, or a bearer token.

        Returns
        -------
        Origin
            The key.

        Raises
        ------
        TypeError
            For an argument of the wrong type.
        ValueError
            For a URL that `split` refuses, a bad option, or two different credentials.
            No text shows a secret.
        """
        parts = url if isinstance(url, SplitURL) else split(url)
        if credential is not None:
            check_credential(credential)
        if parts.credential is not None:
            if credential is not None and credential != parts.credential:
                raise ValueError(f"two different credentials, one of them in the URL, for {parts.url!r}")
            credential = parts.credential
        if verify not in (True, False):  # a path, say, as other libraries have it
            raise TypeError(f"verify must be True or False, not {verify!r}; certificates go to ca_bundle")
        if http_version is not None and http_version not in HTTP_VERSIONS:
            raise ValueError(f"http_version must be one of {', '.join(HTTP_VERSIONS)}, not {http_version!r}")
        proxy, proxy_credential = split_proxy(proxy)
        cert, key_password = _client_cert(client_cert)
        return cls(
            scheme=parts.scheme,
            host=parts.host,
            port=parts.port,
            proxy=proxy,
            proxy_credential=_digest_of(proxy_credential),
            verify=verify,
            ca_bundle=None if ca_bundle is None else _path("ca_bundle", ca_bundle),
            client_cert=cert,
            key_password=None if key_password is None else _digest("password", key_password),
            resolve=_resolve(resolve),
            http_version=http_version,
            credential=_digest_of(credential),
            _secrets=Secrets(credential, proxy_credential, key_password),
        )

    @property
    def url(self) -> str:
        """``scheme://host[:port]``, without a path."""
        return base(self.scheme, self.host, self.port)

    def secrets(self) -> Secrets:
        """Return the values behind the digests: for setting up a handle, never for show.

        Raises
        ------
        ValueError
            Where they are lost: the origin was pickled, or not made by `of`.
        """
        values = self._secrets
        # Digests are of one process, so what is held is looked at, not digested again.
        for name in ("credential", "proxy_credential", "key_password"):
            if (getattr(self, name) is None) is not (getattr(values, name) is None):
                raise ValueError(f"{self!r} has lost its {name} (was it pickled?): make it with Origin.of")
        return values

    def __hash__(self) -> int:
        # Hashing a dozen fields takes longer than finding an idle handle, so it is done once.
        found: int | None = self.__dict__.get("_hash")
        if found is None:
            found = hash((self.scheme, self.host, self.port, *self._options()))
            self.__dict__["_hash"] = found
        return found

    def __str__(self) -> str:
        return self.url

    def __repr__(self) -> str:
        options = zip(_OPTIONS, self._options(), _DEFAULTS, strict=True)
        given = [f"{name}={value!r}" for name, value, default in options if value != default]
        return f"Origin({', '.join([repr(self.url), *given])})"

    def _options(self) -> tuple[object, ...]:
        return (
            self.proxy,
            self.proxy_credential,
            self.verify,
            self.ca_bundle,
            self.client_cert,
            self.key_password,
            self.resolve,
            self.http_version,
            self.credential,
        )

    def __copy__(self) -> Origin:
        return self  # immutable; a copy by way of pickle would lose the secrets

    def __deepcopy__(self, memo: object) -> Origin:
        return self

    def __getstate__(self) -> dict[str, Any]:
        # Without the secrets: an unpickled origin then has the class's own, empty ones.  Without the
        # hash, which is another one in another process.
        return {name: value for name, value in self.__dict__.items() if name not in {"_secrets", "_hash"}}


Origin.__module__ = "respool.curl"

_OPTIONS: Final = (
    "proxy",
    "proxy_credential",
    "verify",
    "ca_bundle",
    "client_cert",
    "key_password",
    "resolve",
    "http_version",
    "credential",
)
_DEFAULTS: Final = (None, None, True, None, None, None, (), None, None)


def split_proxy(proxy: object) -> tuple[str | None, tuple[str, str] | None]:
    """Return a proxy in its one spelling, and its credential apart; raises as `Origin.of` does."""
    if proxy is None or proxy == "":
        return None if proxy is None else "", None
    text = proxy if not isinstance(proxy, str) or "://" in proxy else "http://" + proxy
    scheme, userinfo, authority, tail = cut(text, "proxy", _PROXY_PORTS)
    assert isinstance(text, str)  # noqa: S101  _cut has raised for anything else
    if tail not in {"", "/"}:
        refuse("a path or query behind the host of the proxy", text)
    try:
        host, port = host_and_port(authority)
    except ValueError as error:
        refuse(f"{error} in proxy", text)
    return (
        f"{scheme}://{bracketed(host)}:{port or _PROXY_PORTS[scheme]}",
        decode_userinfo(userinfo, text) if userinfo else None,
    )


def _client_cert(value: object) -> tuple[tuple[str, ...] | None, str | None]:
    """Return the paths of a client certificate, and the password of its key apart."""
    if value is None:
        return None, None
    given = cast("tuple[object, ...]", value) if isinstance(value, tuple) else (value,)
    paths, rest = given[:2], given[2:]
    if not paths or len(rest) > 1:
        what = "(certificate, key) or (certificate, key, password)"
        raise ValueError(f"client_cert must be {what}, not {len(given)} items")
    for password in rest:
        check_credential(("", password), "client_cert")
    return tuple(_path("client_cert", part) for part in paths), cast("str", rest[0]) if rest else None


def _path(name: str, value: object) -> str:
    """Return a path as text, without looking whether it is there."""
    path: object = os.fspath(cast("os.PathLike[str]", value)) if isinstance(value, os.PathLike) else value
    if not isinstance(path, str):
        raise TypeError(f"{name} must be a path as text, not {type(path).__name__}")
    if not path or "\0" in path:
        raise ValueError(f"{name} must be a path, not {path!r}")
    return path


def _resolve(entries: Iterable[object] | None) -> tuple[str, ...]:
    """Return name overrides, checked as far as libcurl would drop them in silence."""
    if entries is None:
        return ()
    if isinstance(entries, str):
        raise TypeError(f"resolve must be several texts, like [{entries!r}], not one")
    found: list[str] = []
    for entry in entries:
        if not isinstance(entry, str):
            raise TypeError(f"resolve must be texts, not {type(entry).__name__}")
        if CONTROL.search(entry) or not _RESOLVE.match(entry):
            raise ValueError(f"resolve must be HOST:PORT:ADDRESS, not {entry!r}")
        found.append(entry)
    return tuple(found)
