"""Pooled host memory: allocators, and a pool of buffers under one byte budget."""

from __future__ import annotations

from respool.buffers.buffer import Buffer
from respool.buffers.host import Allocator, HostAllocator, PageAlignedAllocator
from respool.buffers.leases import BufferLease, BufferLeaseGroup
from respool.buffers.pinned import PinnedAllocator, RegisteredAllocator
from respool.buffers.pool import BufferPool

__all__ = [
    "Allocator",
    "Buffer",
    "BufferLease",
    "BufferLeaseGroup",
    "BufferPool",
    "HostAllocator",
    "PageAlignedAllocator",
    "PinnedAllocator",
    "RegisteredAllocator",
]
