"""Reading URLs and making them fit for messages."""

from __future__ import annotations

import string
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from respool.curl.origin import redact, split

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A busy machine is no failure."""

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("url", "again"),
    [
        ("http://h", "http://h/"),
        ("HTTP://H:80/", "http://h/"),
        ("https://h:443/a?b=c#d", "https://h/a?b=c"),
        ("https://h:80/a", "https://h:80/a"),
        ("http://h?x=1", "http://h/?x=1"),
        ("http://h#top", "http://h/"),
        ("http://h:/a", "http://h/a"),
        ("http://h:0080/a", "http://h/a"),
        ("http://h//a//b/../c", "http://h//a//b/../c"),
        ("http://a_b-c.d.", "http://a_b-c.d./"),
        ("http://[2001:DB8:0::1]:8080/", "http://[2001:db8::1]:8080/"),
        ("http://[fe80::1%25eth0]/", "http://[fe80::1%25eth0]/"),
        ("http://127.0.0.1:65535", "http://127.0.0.1:65535/"),
        ("https://Bücher.example/ü x", "https://xn--bcher-kva.example/%C3%BC%20x"),
        ("https://straße.example", "https://xn--strae-oqa.example/"),
        ("https://日本語。JP/", "https://xn--wgv71a119e.jp/"),
        ("http://h/%2F%zz?a=%", "http://h/%2F%zz?a=%"),
    ],
)
def test_one_spelling(url: str, again: str) -> None:
    """U07: a URL is put together again in the one spelling in which equal origins are equal."""
    assert split(url).url == again
    assert split(again).url == again


def test_the_user_is_taken_out_of_the_url() -> None:
    """U06: user and password leave the URL, percent-decoded, and the repr of its parts doesn't show them."""
    parts = split(f"https://us%40er:{SECRET}%2F@h/a")
    assert parts.url == "https://h/a"
    assert parts.credential == ("us@er", f"{SECRET}/")
    assert SECRET not in repr(parts)
    assert split("https://user@h/").credential == ("user", "")
    assert split("https://@h/").credential is None


@pytest.mark.parametrize(
    "url",
    [
        "",
        "http://",
        "http:///path",
        "http://:80/",
        "http://?x",
        "h",
        "h/path",
        "//h/path",
        "://h",
        "http:h",
        "ftp://h/",
        "file:///etc/passwd",
        "ws://h/",
        "http://h:0/",
        "http://h:65536/",
        "http://h:-1/",
        "http://h:+80/",
        "http://h:\uff18\uff10/",
        "http://h:8_0/",
        "http://h:80:80/",
        "http://h:http/",
        "http://h :80/",
        "http://h h/",
        " http://h/",
        "http://h/ ",
        "http://h/\n",
        "http://h/\r\nX-Injected: 1",
        "http://h\x00.evil/",
        "http://h\\@evil/",
        "http://good\\evil/",
        "http://h..i/",
        "http://./",
        "http://" + "a" * 64 + "/",
        "http://" + "a." * 127 + "a/",
        "http://%68/",
        "http://h;evil/",
        "http://[::1/",
        "http://::1/",
        "http://[::1]x/",
        "http://[::1]:x/",
        "http://[::g]/",
        "http://[1.2.3.4]/",
        "http://[v1.x]/",
        "http://[fe80::1%25]/",
        "http://[fe80::1%25a/b]/",
        "http://-ü-.example/",
        "http://ü..example/",
        "http://\uff0531/",
        "http://h\uff0fevil/",
        "http://h/\ud800",
    ],
)
def test_what_is_no_url(url: str) -> None:
    """U07: a URL that is empty, hostless, of another scheme, ambiguous or broken is a ValueError that shows it."""
    with pytest.raises(ValueError, match=r"(URL|scheme)") as caught:
        split(url)
    text = str(caught.value)
    assert redact(url) in text
    assert text.isprintable()


@pytest.mark.parametrize(
    "url",
    [
        f"http://user:{SECRET}@:80/",
        f"http://user:{SECRET}@h:0/",
        f"http://user:{SECRET}@h@h/",
        f"http://user:{SECRET}/@h/",
        f"http://user:{SECRET}?@h/",
        f"http://user:{SECRET}#@h/",
        f"http://user:{SECRET}%00@h/",
        f"http://user:{SECRET}%ff@h/",
        f"http://us%3Aer:{SECRET}@h/",
        f"ftp://user:{SECRET}@h/",
        f"user:{SECRET}@h/",
        f"http:/user:{SECRET}@h/",
        f"http://h:0/?X-Amz-Signature={SECRET}",
        f"ftp://h/?{SECRET}",
        f"http://h:0/a;token={SECRET}/b",
        f"http://h:0/a#{SECRET}",
    ],
)
def test_errors_hold_no_secret(url: str) -> None:
    """U06: what is wrong with a URL is told without user, password, query values and fragment."""
    with pytest.raises(ValueError, match=r".") as caught:
        split(url)
    assert SECRET not in str(caught.value)
    assert "user:" not in str(caught.value)


@pytest.mark.parametrize("url", [None, 5, b"http://h/", ["http://h/"]])
def test_what_is_no_text(url: Any) -> None:
    """U07: a URL that is no str is a TypeError that names its type."""
    with pytest.raises(TypeError, match=type(url).__name__):
        split(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://user:pw@host:8443/a/b?X-Sig=abc&flag&=x#frag", "https://host:8443/a/b?X-Sig=***&***&=***"),
        ("https://host/path@v2/file", "https://host/path@v2/file"),
        ("https://host/a;jsessionid=1/b", "https://host/a;***/b"),
        ("s3://bucket/key?versionId=1", "s3://bucket/key?versionId=***"),
        ("/a/local/path", "/a/local/path"),
        ("http://h/\x1b[31m\n", r"http://h/\x1b[31m\n"),
        ("http://[::1]:80/", "http://[::1]:80/"),
        ("", ""),
    ],
)
def test_redacted(url: str, shown: str) -> None:
    """U06: a message shows where a URL leads, and none of what may be secret in it."""
    assert redact(url) == shown


HOSTS = st.lists(
    st.text(string.ascii_letters + string.digits + "-_", min_size=1, max_size=20), min_size=1, max_size=4
)
PORTS = st.none() | st.integers(1, 65535)
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)
PATHS = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="?#"), max_size=20)


@PATIENT
@given(st.sampled_from(["http", "https", "HTTP", "Https"]), HOSTS, PORTS, PATHS)
def test_split_agrees_with_the_standard_library(
    scheme: str, labels: list[str], port: int | None, path: str
) -> None:
    """U07: of every well-formed URL, host and port are those that the standard library reads, too."""
    host = ".".join(labels)
    url = f"{scheme}://{host}{'' if port is None else f':{port}'}/{path}".rstrip()
    parts, theirs = split(url), urlsplit(url)
    assert (parts.scheme, parts.host) == (theirs.scheme, theirs.hostname)
    assert parts.port == theirs.port or (
        theirs.port is None and parts.port == (443 if parts.scheme == "https" else 80)
    )
    assert split(parts.url) == parts
    assert parts.url.isascii()
    assert " " not in parts.url


@PATIENT
@given(user=TEXTS.filter(lambda text: ":" not in text), password=TEXTS)
def test_credentials_in_a_url_come_out_as_they_went_in(user: str, password: str) -> None:
    """U06: whatever user and password are, percent-encoded in a URL, they are read back exactly and never shown."""
    url = f"https://{quote(user, safe='')}:{quote(password, safe='')}@host/"
    assert split(url).credential == (user, password)
    assert split(url).url == redact(url) == "https://host/"


@PATIENT
@given(st.text(max_size=60))
@example("a://b://c@d")
@example("http://[@]")
def test_redact_takes_any_text(text: str) -> None:
    """U06: redacting never fails, is printable, and is the same done twice."""
    shown = redact(text)
    assert shown.isprintable()
    assert redact(shown) == shown


@PATIENT
@given(st.text(max_size=60).map(lambda text: "http://" + text))
@example("http://a@b@c")
@example("http://@@")
def test_split_raises_nothing_but_value_errors(url: str) -> None:
    """U07: any text is either read, into what reads the same again, or a ValueError."""
    try:
        parts = split(url)
    except ValueError:
        return
    again = split(parts.url)
    assert (again.scheme, again.host, again.port, again.target) == (
        parts.scheme,
        parts.host,
        parts.port,
        parts.target,
    )


@PATIENT
@given(st.text(min_size=2000, max_size=3000))
def test_redact_is_bounded(text: str) -> None:
    """U06: a message doesn't grow with the URL."""
    assert len(redact("http://h/" + text)) <= 1000
