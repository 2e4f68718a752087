"""The key: what makes two connections differ, and that no secret shows."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from respool.curl import Origin
from tests.helpers.programs import printed_by

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A busy machine is no failure."""

SECRET = "hunter2"

#: One value for each option, none of them the default.
OPTIONS: dict[str, Any] = {
    "proxy": "http://proxy.example:3128",
    "verify": False,
    "ca_bundle": "/certificates/ca.pem",
    "client_cert": ("/certificates/me.pem", "/certificates/me.key"),
    "resolve": ["h:80:127.0.0.1"],
    "http_version": "1.1",
    "credential": ("user", SECRET),
}


@pytest.mark.parametrize(
    "others",
    [
        ["http://h", "http://h:80", "http://h/", "HTTP://H:80/a/b?c#d", "http://h:080"],
        ["https://h", "https://h:443/x", "HTTPS://H"],
        ["http://h:8080", "http://H:8080/x"],
        ["https://bücher.example", "https://BÜCHER.example", "https://xn--bcher-kva.example:443"],
        ["http://[::1]", "http://[0:0::1]:80"],
        ["http://user:p%40@h", "http://user:p@h".replace("p@", "%70%40@")],
    ],
)
def test_one_origin(others: list[str]) -> None:
    """U07: spellings of one origin are one key; path, query and fragment don't matter."""
    origins = {Origin.of(url) for url in others}
    assert len(origins) == 1
    assert len({hash(origin) for origin in origins}) == 1


def test_other_origins() -> None:
    """U07: another scheme, host or port is another key, a trailing dot too."""
    urls = ["http://h", "https://h", "http://h:443", "https://h:80", "http://i", "http://h.", "http://[::1]"]
    assert len({Origin.of(url) for url in urls}) == len(urls)


@pytest.mark.parametrize("name", OPTIONS)
def test_each_option_is_in_the_key(name: str) -> None:
    """U07: every option alone makes another key, and the same option the same key."""
    plain, other = Origin.of("https://h"), Origin.of("https://h", **{name: OPTIONS[name]})
    assert plain != other
    assert other == Origin.of("https://h/other", **{name: OPTIONS[name]})
    assert name in repr(other)
    assert name not in repr(plain)


@PATIENT
@given(
    st.dictionaries(st.sampled_from(sorted(OPTIONS)), st.just(None)),
    st.dictionaries(st.sampled_from(sorted(OPTIONS)), st.just(None)),
)
def test_keys_are_equal_exactly_when_the_options_are(left: dict[str, None], right: dict[str, None]) -> None:
    """U07: of any two sets of options, the keys are equal if and only if the sets are."""
    first = Origin.of("https://h/a", **{name: OPTIONS[name] for name in left})
    second = Origin.of("https://H:443/b", **{name: OPTIONS[name] for name in right})
    assert (first == second) is (set(left) == set(right))
    assert first != second or hash(first) == hash(second)


CREDENTIALS = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters=":"), min_size=1, max_size=8
)


@PATIENT
@given(CREDENTIALS, CREDENTIALS, CREDENTIALS, CREDENTIALS)
def test_credentials_are_told_apart(user: str, password: str, other_user: str, other_password: str) -> None:
    """U06: two credentials give one key if and only if they are the same, however they are cut in two."""
    first = Origin.of("http://h", credential=(user, password))
    second = Origin.of("http://h", credential=(other_user, other_password))
    assert (first == second) is ((user, password) == (other_user, other_password))
    assert first.secrets().credential == (user, password)
    assert Origin.of("http://h", credential=user) != Origin.of("http://h", credential=(user, ""))


def test_a_credential_in_the_url_is_the_credential() -> None:
    """U06: ``user:password@`` and ``credential=`` are two ways to say the same; two that differ are an error."""
    origin = Origin.of(f"http://user:{SECRET}@h")
    assert origin == Origin.of("http://h", credential=("user", SECRET))
    assert origin == Origin.of(f"http://user:{SECRET}@h", credential=("user", SECRET))
    with pytest.raises(ValueError, match="two different credentials") as caught:
        Origin.of(f"http://user:{SECRET}@h", credential=("other", SECRET + "!"))
    assert SECRET not in str(caught.value)


def secretive() -> Origin:
    """An origin with a secret in each place that can hold one."""
    return Origin.of(
        "https://h/a",
        credential=("user", SECRET),
        proxy=f"http://someone:{SECRET}@proxy:3128",
        client_cert=("/me.pem", "/me.key", SECRET),
    )


def test_secrets_do_not_show() -> None:
    """U06: a key shows, holds in its compared fields, and pickles, digests and no secret."""
    origin = secretive()
    shown = [repr(origin), str(origin), f"{origin}", repr(origin.secrets())]
    shown += [repr(getattr(origin, field.name)) for field in fields(origin)]
    shown += [
        pickle.dumps(origin, protocol).decode("latin-1") for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
    ]
    assert [text for text in shown if SECRET in text or "someone" in text] == []
    assert origin.proxy == "http://proxy:3128"


def test_digests_are_of_this_process_alone() -> None:
    """U06: the digest of a weak password can't be guessed from a log: it differs from process to process."""
    program = (
        "from respool.curl import Origin; print(Origin.of('http://h', credential=('user', 'pw')).credential)"
    )
    assert printed_by(program) != printed_by(program)


def test_a_pickled_origin_has_lost_its_secrets() -> None:
    """U20: a pickled origin is equal within the process, has no secret, and says so when asked for one."""
    origin = secretive()
    again = pickle.loads(pickle.dumps(origin))  # noqa: S301 - our own
    assert again == origin
    assert hash(again) == hash(origin)
    with pytest.raises(ValueError, match="lost its credential") as caught:
        again.secrets()
    assert SECRET not in str(caught.value)
    plain = Origin.of("http://h", proxy="")
    assert pickle.loads(pickle.dumps(plain)).secrets() == plain.secrets()  # noqa: S301


def test_a_copied_origin_is_the_same() -> None:
    """U06: copies within the process keep the secrets; origins and their secrets are immutable."""
    origin = secretive()
    assert copy.copy(origin) is origin
    assert copy.deepcopy([origin])[0] is origin
    assert copy.deepcopy(origin.secrets()) is origin.secrets()
    with pytest.raises(FrozenInstanceError):
        origin.port = 1  # type: ignore[misc]  # that is the point
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(origin.secrets())


def test_a_changed_origin_is_checked() -> None:
    """U07: an origin that `dataclasses.replace` made is one that a URL could have made, or a ValueError."""
    origin = secretive()
    assert replace(origin, port=8443) == replace(origin, port=8443)
    assert replace(origin, port=8443).secrets().credential == ("user", SECRET)
    for change in (
        {"host": "H"},
        {"host": "h/evil"},
        {"host": ""},
        {"port": 0},
        {"scheme": "ftp"},
        {"host": "a@b"},
    ):
        with pytest.raises(ValueError, match=r"URL|origin"):
            replace(origin, **change)


@pytest.mark.parametrize(
    ("proxy", "shown"),
    [
        ("proxy", "http://proxy:1080"),
        ("proxy:3128", "http://proxy:3128"),
        ("HTTP://PROXY:3128/", "http://proxy:3128"),
        ("https://proxy", "https://proxy:443"),
        ("socks5h://proxy:9050", "socks5h://proxy:9050"),
        ("http://[::1]:3128", "http://[::1]:3128"),
        ("", ""),
    ],
)
def test_proxies_have_one_spelling(proxy: str, shown: str) -> None:
    """U07: spellings of one proxy are one key, and other credentials for it another."""
    assert Origin.of("http://h", proxy=proxy).proxy == shown
    if proxy:
        address = shown.partition("://")[2]
        kind = shown.partition("://")[0]
        first, second = (Origin.of("http://h", proxy=f"{kind}://{user}:{SECRET}@{address}") for user in "ab")
        assert first.proxy == second.proxy == shown
        assert first != second


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"proxy": f"ftp://user:{SECRET}@proxy"}, ValueError),
        ({"proxy": f"http://user:{SECRET}@"}, ValueError),
        ({"proxy": f"http://user:{SECRET}@proxy:0"}, ValueError),
        ({"proxy": f"http://user:{SECRET}@proxy/path"}, ValueError),
        ({"proxy": 3128}, TypeError),
        ({"verify": "/ca.pem"}, TypeError),
        ({"verify": None}, TypeError),
        ({"ca_bundle": ""}, ValueError),
        ({"ca_bundle": b"/ca.pem"}, TypeError),
        ({"ca_bundle": "/ca\0.pem"}, ValueError),
        ({"client_cert": ()}, ValueError),
        ({"client_cert": ("/a", "/b", SECRET, "/c")}, ValueError),
        ({"client_cert": ("/a", 5)}, TypeError),
        ({"client_cert": ("/a", "/b", 5)}, TypeError),
        ({"client_cert": ["/a", "/b"]}, TypeError),
        ({"resolve": "h:80:127.0.0.1"}, TypeError),
        ({"resolve": ["h"]}, ValueError),
        ({"resolve": ["h:80:"]}, ValueError),
        ({"resolve": ["h:80:127.0.0.1\n"]}, ValueError),
        ({"resolve": [5]}, TypeError),
        ({"http_version": "4"}, ValueError),
        ({"http_version": 2}, ValueError),
        ({"credential": ""}, ValueError),
        ({"credential": f"{SECRET}\r\nX-Injected: 1"}, ValueError),
        ({"credential": ("user", f"{SECRET}\0")}, ValueError),
        ({"credential": ("us:er", SECRET)}, ValueError),
        ({"credential": ("user", f"{SECRET}\ud800")}, ValueError),
        ({"credential": ("user",)}, TypeError),
        ({"credential": ("user", SECRET, "x")}, TypeError),
        ({"credential": ["user", SECRET]}, TypeError),
        ({"credential": ("user", SECRET.encode())}, TypeError),
        ({"credential": 5}, TypeError),
    ],
)
def test_bad_options(options: dict[str, Any], error: type[Exception]) -> None:
    """U07: a bad option is a ValueError or TypeError, whose text holds no secret."""
    with pytest.raises(error) as caught:
        Origin.of("http://h", **options)
    assert SECRET not in str(caught.value)
    assert next(iter(options)).split("_")[0] in str(caught.value)


def test_paths_may_be_paths() -> None:
    """U07: a path as text and as a Path is one key."""
    first = Origin.of("https://h", ca_bundle="/ca.pem", client_cert=("/a.pem", "/a.key"))
    second = Origin.of("https://h", ca_bundle=Path("/ca.pem"), client_cert=(Path("/a.pem"), Path("/a.key")))
    assert first == second
    assert Origin.of("https://h", client_cert=Path("/a.pem")).client_cert == ("/a.pem",)


def test_an_origin_reads_well() -> None:
    """U06: its text is its URL, its repr what differs from the default."""
    origin = Origin.of("https://user:pw@H:8443/x", proxy="p:3128", verify=False, resolve=["h:1:::1"])
    assert str(origin) == "https://h:8443"
    assert repr(origin) == (
        f"Origin('https://h:8443', proxy='http://p:3128', verify=False, resolve=('h:1:::1',), "
        f"credential={origin.credential!r})"
    )
    assert repr(Origin.of("http://[::1]")) == "Origin('http://[::1]')"


def test_without_idna() -> None:
    """U07: where the package idna is missing, an international host is an ImportError naming the extra, and no other."""
    program = """
        import sys
        sys.modules["idna"] = None
        from respool.curl import Origin
        print(Origin.of("http://xn--bcher-kva.example"))
        try:
            Origin.of("http://bücher.example")
        except ImportError as error:
            print(error)
    """
    plain, error = printed_by(program)
    assert plain == "http://xn--bcher-kva.example"
    assert "pip install respool[curl]" in error
