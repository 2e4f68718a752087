"""Settings: where they come from, and what is wrong with them."""

from __future__ import annotations

import math
import mmap
import os
import pickle
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.io import Config, Session
from respool.io._settings import parse_seconds, parse_size

PAGE = mmap.PAGESIZE
UNITS = {
    "": 1,
    "B": 1,
    "kB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "TB": 1000**4,
    "KiB": 1024,
    "MiB": 1024**2,
    "GiB": 1024**3,
    "TiB": 1024**4,
}


@given(
    st.integers(1, 10**15), st.sampled_from(sorted(UNITS)), st.sampled_from(["", " "]), st.sampled_from("ulx")
)
def test_sizes_as_text(number: int, unit: str, blank: str, case: str) -> None:
    """R47: a size is a whole number with a decimal or binary unit, in any case."""
    spelt = {"u": unit.upper(), "l": unit.lower(), "x": unit}[case]
    size = number * UNITS[unit]
    assert parse_size("x", number) == number
    if size <= sys.maxsize:
        assert parse_size("x", f"{number}{blank}{spelt}") == size
    else:
        with pytest.raises(ValueError, match=f"x must be at most {sys.maxsize}, not {size}"):
            parse_size("x", f"{number}{blank}{spelt}")


@given(st.text(max_size=12))
def test_any_text_is_a_size_or_refused(text: str) -> None:
    """R47: any text is a size ≥ 1 or a ValueError that names the setting and shows the text."""
    try:
        size = parse_size("task_size", text)
    except ValueError as caught:
        said = str(caught)
    else:
        assert size >= 1
        return
    assert "task_size" in said
    assert repr(text) in said


def test_fractions_of_units() -> None:
    """R47: a fraction of a unit is taken where it's a whole number of bytes."""
    assert parse_size("x", "1.5 MiB") == 3 << 19
    with pytest.raises(ValueError, match="no whole number of bytes"):
        parse_size("x", "1.5B")


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("task_size", 0, ValueError),
        ("task_size", -1, ValueError),
        ("task_size", True, TypeError),
        ("task_size", 1.0, TypeError),
        ("task_size", None, TypeError),
        ("task_size", "4 MiBs", ValueError),
        ("task_size", "-4MiB", ValueError),
        ("task_size", "1e3", ValueError),
        ("concurrency", 0, ValueError),
        ("concurrency", "16", TypeError),
        ("concurrency", 2.0, TypeError),
        ("per_origin", -3, ValueError),
        ("buffer_size", "0", ValueError),
        ("max_bytes", 1, ValueError),
        ("connect_timeout", 0, ValueError),
        ("connect_timeout", None, ValueError),
        ("connect_timeout", math.inf, ValueError),
        ("timeout", -1, ValueError),
        ("timeout", math.nan, ValueError),
        ("timeout", True, TypeError),
        ("timeout", 0, ValueError),
        ("timeout", 0.0, ValueError),
        ("timeout", "30", TypeError),
        ("timeout", "none", TypeError),
        ("connect_timeout", "10", TypeError),
        ("low_speed", -1, ValueError),
        ("allocator", "pinned", ValueError),
        ("allocator", None, ValueError),
        ("allow_full_response", "yes", TypeError),
        ("allow_full_response", 1, TypeError),
        ("max_bytes", "none", ValueError),
        ("low_speed", "none", ValueError),
        ("ca_bundle", "", ValueError),
        ("ca_bundle", "a\0b", ValueError),
        ("ca_bundle", b"x", TypeError),
        ("proxy", 3128, TypeError),
        ("proxy", "ftp://proxy", ValueError),
        ("proxy", "proxy:port", ValueError),
        ("task_size", 1 << 63, ValueError),
        ("buffer_size", "9000000TiB", ValueError),
        ("low_speed", 1 << 63, ValueError),
        ("concurrency", 1 << 63, ValueError),
        ("per_origin", "8", TypeError),
        ("connect_timeout", 1e10, ValueError),
    ],
)
def test_bad_values(name: str, value: object, error: type[Exception]) -> None:
    """R47: a value that makes no sense is an error that names the setting."""
    with pytest.raises(error, match=name):
        Config(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("task_size", "8MiB", 8 << 20),
        ("concurrency", "3", 3),
        ("per_origin", " 2 ", 2),
        ("buffer_size", "64 KiB", 1 << 16),
        ("max_bytes", "1GiB", 1 << 30),
        ("max_bytes", "none", None),
        ("connect_timeout", "2.5", 2.5),
        ("timeout", "30", 30.0),
        ("timeout", "inf", None),
        ("timeout", "none", None),
        ("low_speed", "0", None),
        ("low_speed", "10kB", 10_000),
        ("allocator", "host", "host"),
        ("low_speed", "none", None),
        ("max_bytes", " None ", None),
        *(("allow_full_response", text, True) for text in ("1", "true", "TRUE", "Yes", " yes ", "on")),
        *(("allow_downgrade", text, False) for text in ("0", "false", "False", "no", "NO", "off")),
        ("ca_bundle", __file__, __file__),
        ("proxy", "", ""),
        ("proxy", "http://p:1", "http://p:1"),
    ],
)
def test_environment(monkeypatch: pytest.MonkeyPatch, name: str, text: str, value: object) -> None:
    """R47: a variable RESPOOL_NAME sets what isn't given by keyword, and a keyword goes before it."""
    given_value: Any = getattr(Config(), name)
    monkeypatch.setenv(f"RESPOOL_{name.upper()}", text)
    assert getattr(Config(), name) == value
    assert getattr(Config(**{name: given_value}), name) == given_value


@pytest.mark.parametrize(
    "name", ["TASK_SIZE", "CONCURRENCY", "TIMEOUT", "ALLOW_DOWNGRADE", "ALLOCATOR", "MAX_BYTES"]
)
def test_bad_variables(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """R47: a bad variable is a ValueError that names it, from whatever reads it."""
    monkeypatch.setenv(f"RESPOOL_{name}", "rubbish")
    with pytest.raises(ValueError, match=f"RESPOOL_{name} must be .*'rubbish'"):
        Config()
    with pytest.raises(ValueError, match=f"RESPOOL_{name}"):
        Session()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("concurrency", "four"),
        ("concurrency", "²"),
        ("concurrency", "0"),
        ("per_origin", "9" * 5000),
        ("timeout", "soon"),
        ("timeout", "0"),
        ("timeout", "-1"),
        ("connect_timeout", "none"),
        ("allow_full_response", "maybe"),
    ],
)
def test_bad_texts(monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    """R47: what a variable says is held to the same as what is given by keyword."""
    monkeypatch.setenv(f"RESPOOL_{name.upper()}", text)
    with pytest.raises(ValueError, match=f"^RESPOOL_{name.upper()} must be "):
        Config()


SIZE = r'a size like 4194304 or "4MiB" \(units are kB, MB, GB and TB, of 1000, and KiB, MiB, GiB and TiB, of 1024\)'
TIME = "seconds, more than 0, or None for no limit"
CONNECTING = r"seconds, more than 0 and less than 1e\+09"
FLAG = r"true or false \(or yes or no, on or off, 1 or 0\)"


@pytest.mark.parametrize(
    ("name", "rule", "values"),
    [
        ("task_size", SIZE, ["x", "-1", 1.5, True, None, b"x"]),
        ("task_size", "1 or more", [0, -1, "0"]),
        ("buffer_size", SIZE, ["none", None]),
        ("max_bytes", f"{SIZE}, or None", ["none", "-1", 1.5, False]),
        ("low_speed", f"{SIZE}, or None", ["none", "x", math.inf]),
        ("low_speed", "0 or more, or None", [-1]),
        ("max_bytes", "1 or more, or None", [-1, "0"]),
        ("concurrency", "an int", ["1", 1.5, None]),
        ("per_origin", "1 or more", [0, -1]),
        ("timeout", TIME, [0, -1, -0.5, math.nan, True, "1", "none", b"1"]),
        ("connect_timeout", CONNECTING, [0, -1, math.nan, math.inf, 1e9, None, True, "1"]),
        ("allow_full_response", "True or False", [1, "true", None]),
        ("allocator", '"auto", "host" or "page"', ["none", None, 1]),
        ("ca_bundle", "a path, or None", [1, b"x", ""]),
        ("proxy", 'a URL, "" or None', [1, b"x"]),
    ],
)
def test_one_rule_whatever_is_wrong(name: str, rule: str, values: list[Any]) -> None:
    """R47: a setting's error tells the whole rule, and the same one whichever part of it a value breaks."""
    for value in values:
        with pytest.raises((TypeError, ValueError), match=rf"^{name} must be {rule}, not "):
            Config(**{name: value})


@pytest.mark.parametrize(
    ("name", "rule", "texts"),
    [
        ("concurrency", "a whole number, 1 or more", ["-1", "x", "1.5", "none"]),
        ("timeout", TIME, ["0", "-1", "nan", "soon"]),
        ("connect_timeout", CONNECTING, ["0", "-1", "nan", "inf", "none", "soon"]),
        ("max_bytes", f"{SIZE}, or None", ["-1", "x"]),
        ("allow_downgrade", FLAG, ["2", "maybe", "none", "-1", "t"]),
    ],
)
def test_one_rule_for_variables(
    monkeypatch: pytest.MonkeyPatch, name: str, rule: str, texts: list[str]
) -> None:
    """R47: the same for what a variable says, with what stands for a truth value there."""
    for text in texts:
        monkeypatch.setenv(f"RESPOOL_{name.upper()}", text)
        with pytest.raises(ValueError, match=rf"^RESPOOL_{name.upper()} must be {rule}, not "):
            Config()


def test_one_rule_for_the_time_of_a_call() -> None:
    """R32: so is the limit of one call, for which 0 is none too little."""
    for value in (-1, math.nan, True, "1"):
        with pytest.raises(
            (TypeError, ValueError), match=r"^timeout must be seconds, 0 or more, or None, not "
        ):
            parse_seconds("timeout", value)


def test_certificates_that_are_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """R47: a file of certificates that can't be had is told at once, by the name that it was given under."""
    missing = tmp_path / "none.pem"
    (tmp_path / "forbidden.pem").touch()
    monkeypatch.setattr(
        "os.access", lambda path, mode: (path, mode) != (f"{tmp_path}/forbidden.pem", os.R_OK)
    )
    for path, told in [
        (missing, f"ca_bundle: No such file or directory: '{missing}'"),
        (tmp_path, f"ca_bundle must be a file of certificates, not a folder: '{tmp_path}'"),
        (tmp_path / "forbidden.pem", f"ca_bundle: Permission denied: '{tmp_path}/forbidden.pem'"),
    ]:
        with pytest.raises(ValueError, match=f"^{re.escape(told)}$"):
            Config(ca_bundle=path)
        with pytest.raises(ValueError, match=f"^{re.escape(told)}$"):
            Config(ca_bundle=str(path))
    monkeypatch.setenv("RESPOOL_CA_BUNDLE", str(missing))
    with pytest.raises(ValueError, match=r"^RESPOOL_CA_BUNDLE: No such file or directory: "):
        Session()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"max_bytes": "1000"}, "{max_bytes}=1000 is less than buffer_size=4194304"),
        (
            {"max_bytes": "1MiB", "buffer_size": "2MiB"},
            "{max_bytes}=1048576 is less than {buffer_size}=2097152",
        ),
        (
            {"max_bytes": "10", "buffer_size": "10"},
            f"{{max_bytes}}=10 is less than {{buffer_size}}=10 takes: {PAGE} bytes",
        ),
        (
            {"max_bytes": "10", "buffer_size": "10", "allocator": "host"},
            "{max_bytes}=10 is less than {buffer_size}=10 takes: 16 bytes",
        ),
        ({"proxy": "ftp://user:secret@proxy"}, "{proxy}: unsupported scheme 'ftp'"),
    ],
)
def test_what_only_a_pool_would_refuse(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], told: str
) -> None:
    """R47: what a pool or an origin can't work with is refused here, by the name that it was given under."""
    with pytest.raises(
        ValueError, match=re.escape(told.format_map({name: name for name in settings}))
    ) as caught:
        Config(**settings)
    assert "secret" not in str(caught.value)
    variables = {name: f"RESPOOL_{name.upper()}" for name in settings}
    for name, text in settings.items():
        monkeypatch.setenv(variables[name], text)
    for made in (Config, Session):
        with pytest.raises(ValueError, match=re.escape(told.format_map(variables))) as caught:
            made()
        assert "secret" not in str(caught.value)


def test_what_passes_here_does_for_a_pool() -> None:
    """R47: whatever the buffers' size, a session can be made with the smallest budget that passes, and with none given."""
    for allocator in ("host", "page"):
        for size in (1, 15, 16, 17, PAGE - 1, PAGE, PAGE + 1):
            charged = -(-size // (16 if allocator == "host" else PAGE)) * (
                16 if allocator == "host" else PAGE
            )
            with pytest.raises(ValueError, match="max_bytes"):
                Config(allocator=allocator, buffer_size=size, max_bytes=charged - 1)
            for budget in (charged, None):
                with Session(allocator=allocator, buffer_size=size, max_bytes=budget) as session:
                    session.buffers.lease().release()


def test_empty_variables_are_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """R47: an empty variable is as good as none."""
    monkeypatch.setenv("RESPOOL_TASK_SIZE", "")
    assert Config().task_size == 4 << 20


def test_order_of_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    """R47: keyword before Config before environment before default."""
    monkeypatch.setenv("RESPOOL_TASK_SIZE", "1MiB")
    monkeypatch.setenv("RESPOOL_CONCURRENCY", "5")
    base = Config(task_size="2MiB")
    with Session(base, per_origin=3) as session:
        assert (session.config.task_size, session.config.concurrency) == (2 << 20, 5)
        assert (session.config.per_origin, base.per_origin) == (3, 8)
    with Session(base, task_size="3MiB") as session:
        assert session.config.task_size == 3 << 20


def test_no_timeout_by_keyword(monkeypatch: pytest.MonkeyPatch) -> None:
    """R47: None is a value of its own: it goes before the environment."""
    monkeypatch.setenv("RESPOOL_TIMEOUT", "5")
    assert Config(timeout=None).timeout is None


def test_budget() -> None:
    """R47: the budget is 64 buffers unless said otherwise, and never less than one."""
    assert Config(buffer_size=1000).budget == 64 * PAGE
    assert Config(buffer_size=1000, max_bytes="8kB").budget == 8000
    assert Config().replace(buffer_size="512MiB").budget == 64 << 29
    with pytest.raises(ValueError, match="max_bytes=999 is less than buffer_size=1000"):
        Config(buffer_size=1000, max_bytes=999)


def test_unknown_settings() -> None:
    """R47: a setting that does nothing is refused: those of transports and retries don't exist yet."""
    for name in ("transport", "retries", "task_sizes"):
        with pytest.raises(TypeError, match=name):
            Config(**{name: 1})
        with pytest.raises(TypeError, match=name):
            Session(**{name: 1})
    with pytest.raises(TypeError, match="config must be a Config"):
        Session({"task_size": 1})  # type: ignore[arg-type]


def test_a_config_is_a_value() -> None:
    """R48: configs are frozen, comparable, hashable and can be pickled; a proxy's password isn't shown."""
    config = Config(proxy="http://user:secret@proxy:3128", ca_bundle=Path(__file__))
    assert pickle.loads(pickle.dumps(config)) == config  # noqa: S301 - our own
    assert len({config, config.replace()}) == 1
    assert "secret" not in repr(config)
    assert "proxy:3128" in repr(config)
    with pytest.raises(AttributeError):
        config.task_size = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("value", "seconds"), [(None, None), (math.inf, None), (1e10, None), (1e308, None), (0, 0.0), (1.5, 1.5)]
)
def test_seconds(value: float | None, seconds: float | None) -> None:
    """R32: None and infinity set no limit, nor does what is longer than any clock could wait for."""
    assert parse_seconds("timeout", value) == seconds
