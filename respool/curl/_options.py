"""What libcurl's options are to a pool: which bind a connection, which hold callbacks, what an origin sets.

Owns tables over pycurl's constants and nothing that changes.  A constant that this pycurl
doesn't know is left out: then nobody can set that option either.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pycurl

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .origin import Origin


def _ids(names: str) -> frozenset[int]:
    return frozenset(getattr(pycurl, name) for name in names.split() if hasattr(pycurl, name))


#: Options by which a connection, or what outlives a reset in its handle (TLS sessions, name and HSTS caches),
#: comes to differ from that of the key.  Set by a user, they make the handle unfit for the next one.
BOUND: Final = _ids(
    # what is connected to, and through what
    """
    PROXY PROXYPORT PROXYTYPE PRE_PROXY NOPROXY HTTPPROXYTUNNEL PROXYHEADER PROXYUSERPWD PROXYUSERNAME PROXYPASSWORD
    PROXYAUTH PROXY_SERVICE_NAME PROXY_TRANSFER_MODE SOCKS5_GSSAPI_NEC SOCKS5_GSSAPI_SERVICE SOCKS5_AUTH
    HAPROXYPROTOCOL HAPROXY_CLIENT_IP PORT CONNECT_TO CURLU DEFAULT_PROTOCOL
    RESOLVE DNS_SERVERS DNS_INTERFACE DNS_LOCAL_IP4 DNS_LOCAL_IP6 DNS_CACHE_TIMEOUT DNS_USE_GLOBAL_CACHE DOH_URL
    INTERFACE LOCALPORT LOCALPORTRANGE IPRESOLVE ADDRESS_SCOPE UNIX_SOCKET_PATH ABSTRACT_UNIX_SOCKET
    OPENSOCKETFUNCTION CLOSESOCKETFUNCTION SOCKOPTFUNCTION RESOLVER_START_FUNCTION
    CONNECT_ONLY HTTP_VERSION HTTP09_ALLOWED PROTOCOLS REDIR_PROTOCOLS NOSIGNAL
    TCP_NODELAY TCP_FASTOPEN TCP_KEEPALIVE TCP_KEEPIDLE TCP_KEEPINTVL TCP_KEEPCNT
    MAXCONNECTS MAXAGE_CONN MAXLIFETIME_CONN
    """
    # who is asking
    """
    USERPWD USERNAME PASSWORD HTTPAUTH XOAUTH2_BEARER LOGIN_OPTIONS AWS_SIGV4 NETRC NETRC_FILE
    SERVICE_NAME GSSAPI_DELEGATION UNRESTRICTED_AUTH TLSAUTH_TYPE TLSAUTH_USERNAME TLSAUTH_PASSWORD
    PROXY_TLSAUTH_TYPE PROXY_TLSAUTH_USERNAME PROXY_TLSAUTH_PASSWORD
    """
    # TLS
    """
    CAINFO CAINFO_BLOB CAPATH CRLFILE ISSUERCERT ISSUERCERT_BLOB PINNEDPUBLICKEY KEYPASSWD ECH EGDSOCKET RANDOM_FILE
    SSLCERT SSLCERTTYPE SSLCERTPASSWD SSLCERT_BLOB SSLKEY SSLKEYTYPE SSLKEYPASSWD SSLKEY_BLOB SSLENGINE
    SSLENGINE_DEFAULT SSLVERSION SSL_CIPHER_LIST SSL_EC_CURVES SSL_ENABLE_ALPN SSL_ENABLE_NPN SSL_FALSESTART
    SSL_OPTIONS SSL_SESSIONID_CACHE SSL_SIGNATURE_ALGORITHMS SSL_VERIFYHOST SSL_VERIFYPEER SSL_VERIFYSTATUS
    TLS13_CIPHERS USE_SSL
    PROXY_CAINFO PROXY_CAINFO_BLOB PROXY_CAPATH PROXY_CRLFILE PROXY_ISSUERCERT PROXY_ISSUERCERT_BLOB
    PROXY_KEYPASSWD PROXY_PINNEDPUBLICKEY PROXY_SSLCERT PROXY_SSLCERTTYPE PROXY_SSLCERT_BLOB PROXY_SSLKEY
    PROXY_SSLKEYTYPE PROXY_SSLKEY_BLOB PROXY_SSLVERSION PROXY_SSL_CIPHER_LIST PROXY_SSL_OPTIONS
    PROXY_SSL_VERIFYHOST PROXY_SSL_VERIFYPEER PROXY_TLS13_CIPHERS
    HSTS HSTS_CTRL HSTSREADFUNCTION HSTSWRITEFUNCTION ALTSVC ALTSVC_CTRL
    """
) | {
    286,  # ALTSVC_CTRL, and DOH_SSL_VERIFYPEER, _HOST and _STATUS: pycurl has no names for
    306,  # them, but lets anybody set an option of type long by its number
    307,
    308,
    326,  # TCP_KEEPCNT
}

#: Options that may switch the cookie engine on, which a reset does not switch off again.
COOKIES: Final = _ids("COOKIEFILE COOKIEJAR COOKIELIST SHARE")

#: Authorization schemes that authenticate the connection instead of the request.
_BINDING_SCHEMES: Final = ("ntlm", "negotiate", "kerberos")

_HTTPAUTH_BEARER: Final = 1 << 6  # pycurl has no name for it
_HTTP_VERSIONS: Final = {
    "1.0": pycurl.CURL_HTTP_VERSION_1_0,
    "1.1": pycurl.CURL_HTTP_VERSION_1_1,
    "2": pycurl.CURL_HTTP_VERSION_2TLS,
    "2-prior-knowledge": pycurl.CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE,
    "3": pycurl.CURL_HTTP_VERSION_3,
}


def headers_bind(headers: Iterable[object]) -> bool:
    """Whether request headers authenticate the connection: those by NTLM and its like, and any for a proxy."""
    for header in headers:
        text = header.decode("latin-1") if isinstance(header, bytes) else str(header)
        name, _, value = text.partition(":")
        name = name.strip().lower()
        if name == "proxy-authorization":
            return True
        if name == "authorization" and value.strip().lower().startswith(_BINDING_SCHEMES):
            return True
    return False


@dataclass(frozen=True)
class Settings:
    """What a pool sets on each of its handles, whatever the origin."""

    connect_timeout_ms: int | None = None
    transfer_timeout_ms: int | None = None
    fail_on_error: bool = False


def options_for(origin: Origin, settings: Settings) -> tuple[tuple[int, Any], ...]:
    """Return all that makes a new handle one for this origin, as (option, value) pairs.

    Raises
    ------
    ValueError
        Where the origin has lost its secrets.
    """
    http_only = pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS
    options: list[tuple[int, Any]] = [
        # Signals are for the main thread's handlers; libcurl would use them to time name look-ups out.
        (pycurl.NOSIGNAL, 1),
        (pycurl.PROTOCOLS, http_only),
        (pycurl.REDIR_PROTOCOLS, http_only),
        # The last one used.  Others, to hosts that a redirect led to, nobody could look at before they're used again.
        (pycurl.MAXCONNECTS, 1),
    ]
    if settings.connect_timeout_ms is not None:
        options.append((pycurl.CONNECTTIMEOUT_MS, settings.connect_timeout_ms))
    if settings.transfer_timeout_ms is not None:
        options.append((pycurl.TIMEOUT_MS, settings.transfer_timeout_ms))
    if settings.fail_on_error:
        options.append((pycurl.FAILONERROR, 1))
    if origin.http_version is not None:
        options.append((pycurl.HTTP_VERSION, _HTTP_VERSIONS[origin.http_version]))
    if origin.resolve:
        options.append((pycurl.RESOLVE, list(origin.resolve)))
    return (*options, *_proxy(origin), *_tls(origin), *_credential(origin))


def _text(value: str) -> bytes:
    return value.encode()  # pycurl takes text only where it is ASCII


def _proxy(origin: Origin) -> list[tuple[int, Any]]:
    if origin.proxy is None:
        return []
    options: list[tuple[int, Any]] = [(pycurl.PROXY, origin.proxy)]
    if origin.proxy:
        options.append(
            (pycurl.NOPROXY, "")
        )  # a proxy given by name is not undone by the environment's no_proxy
    credential = origin.secrets().proxy_credential
    if credential is not None:
        user, password = credential
        options += [(pycurl.PROXYUSERNAME, _text(user)), (pycurl.PROXYPASSWORD, _text(password))]
    return options


def _tls(origin: Origin) -> list[tuple[int, Any]]:
    """Return the TLS options; they hold for a proxy that speaks TLS as well, the certificate apart."""
    options: list[tuple[int, Any]] = []
    if not origin.verify:
        options += [(pycurl.SSL_VERIFYPEER, 0), (pycurl.SSL_VERIFYHOST, 0)]
        options += [(pycurl.PROXY_SSL_VERIFYPEER, 0), (pycurl.PROXY_SSL_VERIFYHOST, 0)]
    if origin.ca_bundle is not None:
        bundle = _text(origin.ca_bundle)
        if os.path.isdir(origin.ca_bundle):  # noqa: PTH112 - a path is text all the way here
            options += [(pycurl.CAINFO, None), (pycurl.PROXY_CAINFO, None)]
            options += [(pycurl.CAPATH, bundle), (pycurl.PROXY_CAPATH, bundle)]
        else:
            # In place of the default ones, wherever pycurl found those.
            options += [(pycurl.CAPATH, None), (pycurl.PROXY_CAPATH, None)]
            options += [(pycurl.CAINFO, bundle), (pycurl.PROXY_CAINFO, bundle)]
    if origin.client_cert is not None:
        cert, *key = origin.client_cert
        options.append((pycurl.SSLCERT, _text(cert)))
        options += [(pycurl.SSLKEY, _text(path)) for path in key]
    password = origin.secrets().key_password
    if password is not None:
        options.append((pycurl.KEYPASSWD, _text(password)))
    return options


def _credential(origin: Origin) -> list[tuple[int, Any]]:
    """Return the server's credential, as options and not as a header: libcurl keeps those from other hosts."""
    credential = origin.secrets().credential
    if credential is None:
        return []
    if isinstance(credential, str):
        return [(pycurl.HTTPAUTH, _HTTPAUTH_BEARER), (pycurl.XOAUTH2_BEARER, _text(credential))]
    user, password = credential
    return [
        (pycurl.HTTPAUTH, pycurl.HTTPAUTH_BASIC),
        (pycurl.USERNAME, _text(user)),
        (pycurl.PASSWORD, _text(password)),
    ]
