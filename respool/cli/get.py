"""``respool get``: read a URL or a file, whole or a range of it, into a file, into a pipe or just past.

This module owns the command's arguments and what goes where.
"""

from __future__ import annotations

import argparse
import os
import re
from typing import TYPE_CHECKING

from respool.cli._arguments import some
from respool.cli._errors import CommandError
from respool.cli._interrupts import Held

if TYPE_CHECKING:
    from respool.cli._read import Range

_RANGE = re.compile(r"(?=[0-9]|-[0-9])([0-9]{0,18})-([0-9]{0,18})")
#: What begins like a URL without its scheme: a host and a port, or a host that can hardly be a folder's name.
_ADDRESS = re.compile(
    r"""(?P<host> (?P<near> localhost | \[[0-9A-Fa-f:.]+\] | [0-9]{1,3}(?:\.[0-9]{1,3}){3})
                | [A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z][A-Za-z0-9-]*
                | [A-Za-z][A-Za-z0-9-]*(?=:) )
        (?: :(?P<port>[0-9]{1,5}) (?=[/?]|\Z) | (?=/) )""",
    re.VERBOSE,
)
_DIGEST = re.compile(r"sha256:([0-9a-fA-F]{64})")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.epilog = (
        "Settings of the reader are taken from the environment: RESPOOL_TIMEOUT=3, say, gives 3 seconds to the question "
        "for the size and to each block of 4 MiB, RESPOOL_PROXY and RESPOOL_CA_BUNDLE say what their names do. "
        "RESPOOL_ALLOW_FULL_RESPONSE=true reads larger files from servers that know no ranges, too, such as Python's "
        "http.server: each block of 4 MiB then downloads the file from its beginning."
    )
    parser.add_argument(
        "source",
        metavar="URL|PATH",
        type=some("a URL or a path"),
        help="http://, https:// or file:// URL, or a path",
    )
    parser.add_argument(
        "-o",
        dest="output",
        metavar="FILE",
        type=some("a file, or -"),
        help="write the bytes to FILE, replacing it only when all have come; - is stdout (default: drop them)",
    )
    parser.add_argument(
        "--range",
        dest="asked",
        metavar="A-B|A-|-N",
        type=parse_range,
        help="only bytes A to B (both included, from 0), from A on, or the last N",
    )
    parser.add_argument(
        "--verify", metavar="sha256:HEX", type=_digest, help="fail unless the bytes read have this digest"
    )
    parser.add_argument("--json", action="store_true", help="tell the result as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Read, and tell how it went."""
    with Held():
        from respool.cli._output import output
        from respool.cli._read import read
        from respool.io import Session

    to_stdout = arguments.output == "-"
    with Session() as session, output(arguments.output) as sink:
        try:
            report = read(session, arguments.source, sink, asked=arguments.asked, expected=arguments.verify)
        except FileNotFoundError as error:
            _ask_for_scheme(arguments.source, error)
            raise
    report.show(as_json=arguments.json, to_stderr=to_stdout)
    return 0


def meant(source: str) -> str | None:
    """Return the URL that was probably meant by one without all of its scheme, or None where a path was."""
    from respool.io._open import missing_slashes

    slipped = missing_slashes(source)
    if slipped is not None:
        return slipped
    match = _ADDRESS.match(source)
    if match is None:
        return None
    # Servers without TLS are mostly near by, or at a port of their own.
    plain = match["near"] or match["port"] not in (None, "443")
    return f"{'http' if plain else 'https'}://{source}"


def _ask_for_scheme(source: str, error: OSError) -> None:
    """Raise CommandError instead, where it was an address that was looked for among the files."""
    from respool.curl.origin import redact

    url = meant(source)
    if url is not None and not os.path.lexists(source.partition("/")[0]):
        raise CommandError(f"no such file here; did you mean {redact(url)}?") from error


def parse_range(text: str) -> Range:
    """Read ``A-B``, ``A-`` or ``-N``."""
    from respool.cli._read import Range

    match = _RANGE.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"must be A-B, A- or -N, not {text!r}")
    first, last = (int(part) if part else None for part in match.groups())
    if first is not None and last is not None and last < first:
        raise argparse.ArgumentTypeError(f"must not end before it begins: {text!r}")
    if first is None and last == 0:
        raise argparse.ArgumentTypeError("must not be the last 0 bytes: they are nothing to read")
    return Range(first, last)


def _digest(text: str) -> str:
    match = _DIGEST.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"must be sha256: and 64 hexadecimal digits, not {text!r}")
    return match[1].lower()
