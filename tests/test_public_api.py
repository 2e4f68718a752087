"""The public names: which there are, that each is documented and typed, and that none shows where it is kept.

The lists are written out by hand. A name that is added to or taken from a package must be added or taken here too:
that is the moment to think about whether it should be public.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

import pytest

CORE = """
    ALL BoundPool InvalidReleaseError Lease LeaseGroup LeaseLeakWarning LeaseLostError LeaseReleasedError LoggingObserver
    PoolClosedError PoolError PoolExhaustedError PoolLimits PoolObserver PoolReentrancyError PoolStats PoolTimeoutError
    Quarantine ResourcePool __version__
"""
BUFFERS = """
    Allocator Buffer BufferLease BufferLeaseGroup BufferPool HostAllocator PageAlignedAllocator PinnedAllocator
    RegisteredAllocator
"""
CUDA = "CudaError CudaEvent CudaEventPool CudaUnavailableError NoContextError WrongContextError"
CURL = "EasyHandlePool Origin"
IO = """
    Config ConnectError CredentialsError File HTTPStatusError LocalFile ObjectChangedError RangeIntegrityError ReadFuture
    ReadStats ReadTimeoutError RedirectError RemoteFile RemoteIOError Session open
"""

PACKAGES = {
    "respool": CORE.split(),
    "respool.buffers": BUFFERS.split(),
    "respool.cuda": CUDA.split(),
    "respool.curl": CURL.split(),
    "respool.io": IO.split(),
}
NAMES = [(package, name) for package, names in PACKAGES.items() for name in names]
#: Constants: neither classes nor functions, documented where they are used.
CONSTANTS = {("respool", "ALL"), ("respool", "__version__")}
CALLABLES = [entry for entry in NAMES if entry not in CONSTANTS]


def get(package: str, name: str) -> Any:
    """A public name, by the way a user gets it."""
    return getattr(import_module(package), name)


def own_methods(cls: type) -> list[tuple[str, Any]]:
    """The public methods and properties that a class of ours defines or inherits from a class of ours."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.split(".")[0] == "respool":
            found |= {name: value for name, value in vars(base).items() if not name.startswith("_")}
    return sorted(found.items())


def is_protocol(cls: type) -> bool:
    """Whether a class is a protocol, which nobody instantiates."""
    return getattr(cls, "_is_protocol", False)


def function_of(member: Any) -> Any:
    """The function behind a method, property, classmethod or staticmethod, or None for data."""
    if isinstance(member, property):
        return member.fget
    if isinstance(member, classmethod | staticmethod):
        return member.__func__
    return member if inspect.isfunction(member) else None


@pytest.mark.parametrize("package", PACKAGES)
def test_the_list_of_names(package: str) -> None:
    """`__all__` is exactly the list above, sorted, and `dir()` shows all of it."""
    module = import_module(package)
    assert sorted(module.__all__) == sorted(PACKAGES[package])
    assert set(module.__all__) <= set(dir(module))
    assert len(set(module.__all__)) == len(module.__all__)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_star_import_gives_all_of_it(package: str) -> None:
    """Every listed name can be had, the lazily imported ones included."""
    namespace: dict[str, object] = {}
    exec(f"from {package} import *", namespace)  # noqa: S102 - there is no other way to do a star import here
    assert set(PACKAGES[package]) <= set(namespace)


@pytest.mark.parametrize("package", PACKAGES)
def test_an_unknown_name_is_an_attribute_error(package: str) -> None:
    """A lazy package refuses unknown names as any module does, naming itself and the name."""
    with pytest.raises(AttributeError, match=f"{package}.*no_such_name"):
        get(package, "no_such_name")


@pytest.mark.parametrize(("package", "name"), CALLABLES)
def test_names_show_the_public_package(package: str, name: str) -> None:
    """`__module__` is the package that a user imports from, not the file that holds the code."""
    assert get(package, name).__module__ == package
    assert get(package, name).__qualname__ == name


@pytest.mark.parametrize(("package", "name"), CALLABLES)
def test_names_are_documented(package: str, name: str) -> None:
    """Every public class and function, and each public method of it, has a docstring of its own."""
    found = get(package, name)
    assert found.__doc__, f"{package}.{name}"
    assert not found.__doc__.startswith(f"{name}("), "a generated docstring says nothing"
    if inspect.isclass(found):
        missing = [
            method
            for method, member in own_methods(found)
            if function_of(member) is not None and not inspect.getdoc(getattr(found, method))
        ]
        assert missing == []


@pytest.mark.parametrize(("package", "name"), CALLABLES)
def test_names_are_typed(package: str, name: str) -> None:
    """Every parameter and every result of the public functions and methods has an annotation."""
    found = get(package, name)
    members = [(name, found)]
    if inspect.isclass(found):
        members = own_methods(found)
        if not is_protocol(found):  # whose __init__ is typing's own
            members.append(("__init__", vars(found).get("__init__")))
    untyped = []
    for method, member in members:
        function = function_of(member)
        if function is None:
            continue
        signature = inspect.signature(function)
        untyped += [
            f"{method}({parameter.name})"
            for position, parameter in enumerate(signature.parameters.values())
            if parameter.annotation is parameter.empty
            and not (position == 0 and parameter.name in {"self", "cls"})
        ]
        if signature.return_annotation is signature.empty:
            untyped.append(f"{method} -> ?")
    assert untyped == []


def test_the_version_is_that_of_the_distribution() -> None:
    """The version in the package and in its metadata come from one source."""
    from importlib.metadata import version

    assert get("respool", "__version__") == version("respool")


def test_the_errors_of_the_core_are_one_family() -> None:
    """Every error of the core is a PoolError, but for the two that are messages and not failures."""
    errors = {name for name in PACKAGES["respool"] if name.endswith("Error")}
    assert all(issubclass(get("respool", name), get("respool", "PoolError")) for name in errors)
    assert issubclass(get("respool", "PoolTimeoutError"), TimeoutError)
    assert not issubclass(get("respool", "Quarantine"), get("respool", "PoolError"))
    assert issubclass(get("respool", "LeaseLeakWarning"), ResourceWarning)


def test_the_errors_of_reading_are_one_family() -> None:
    """Every error of reading is a RemoteIOError and with it an OSError, and so are the standard ones they stand for."""
    errors = {name for name in PACKAGES["respool.io"] if name.endswith("Error")}
    assert all(issubclass(get("respool.io", name), get("respool.io", "RemoteIOError")) for name in errors)
    assert issubclass(get("respool.io", "RemoteIOError"), OSError)
    assert issubclass(get("respool.io", "ReadTimeoutError"), TimeoutError)
    assert issubclass(get("respool.io", "ConnectError"), ConnectionError)
