"""Text from outside (file names, module names) made fit for type, XML and terminals."""

from __future__ import annotations


def plain(text: str) -> str:
    """Return text with control characters and lone surrogates spelled out: no type, no XML holds them."""
    safe = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in safe)
