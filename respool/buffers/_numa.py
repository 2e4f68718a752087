"""Placing memory on one NUMA node: a single system call that the standard library lacks.

This module owns mbind(2).  Which memory it's for is the caller's affair.
"""

from __future__ import annotations

import ctypes
import os
import platform

#: The number of the system call by machine: x86-64's own table, and the one that newer
#: architectures share (asm-generic/unistd.h).
_SYS_MBIND = {"x86_64": 237, "aarch64": 235, "riscv64": 235, "loongarch64": 235}
#: Take pages from the node while it has free ones, from others then.  MPOL_BIND would have
#: the kernel kill a process when its node is full, which is no way to treat a preference.
_MPOL_PREFERRED = 1
_BITS = 8 * ctypes.sizeof(ctypes.c_ulong)


def prefer_node(address: int, nbytes: int, node: int) -> None:
    """Ask that untouched pages of a mapping come from one NUMA node.

    Parameters
    ----------
    address, nbytes : int
        The mapping: page-aligned start, and length in bytes.
    node : int
        The node's number, from 0.

    Raises
    ------
    OSError
        The kernel refused: EINVAL for a node that doesn't exist, EPERM in a container
        that forbids the call, ENOSYS where the call's number isn't known.
    """
    number = _SYS_MBIND.get(platform.machine())
    if number is None:
        import errno

        raise OSError(errno.ENOSYS, f"numa_node isn't supported on {platform.machine()}")
    words = node // _BITS + 1
    mask = (ctypes.c_ulong * words)()
    mask[node // _BITS] = 1 << (node % _BITS)
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    syscall.restype = ctypes.c_long
    # The kernel takes maxnode as one more than the bits it looks at.
    failed = syscall(
        ctypes.c_long(number),
        ctypes.c_void_p(address),
        ctypes.c_ulong(nbytes),
        ctypes.c_int(_MPOL_PREFERRED),
        mask,
        ctypes.c_ulong(words * _BITS + 1),
        ctypes.c_uint(0),
    )
    if failed:
        code = ctypes.get_errno()
        raise OSError(code, f"numa_node={node}: {os.strerror(code)}")
