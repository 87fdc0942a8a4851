"""Pictures in a Parquet table: bytes in a column, as data sets are given away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from viewer.errors import FileError
from viewer.study.entries import MOST_BYTES, BadEntry, BytesEntry, Entry

if TYPE_CHECKING:
    import pyarrow

_IMAGE_NAMES = ("image", "img", "picture", "jpg", "jpeg", "png", "webp", "image_bytes", "bytes")
_KEY_NAMES = ("path", "file_name", "filename", "name", "__key__", "key", "image_id", "id")
_AT_ONCE = 8  # pictures read together
_BUFFER = 1 << 20


def count(path: Path) -> int:
    """Return the number of rows.

    Raises
    ------
    FileError
        As `rows` does before its first.
    """
    file = _open(path)
    _columns(path, file.schema_arrow)
    return file.metadata.num_rows


def rows(path: Path, prefix: str) -> Iterator[Entry]:
    """Yield the picture of every row.

    Pictures are bytes of an encoded file, in a binary column or in a struct's field ``bytes``, as data sets
    of Hugging Face have them, whose field ``path`` then names them; else a text column such as ``file_name``
    does, else the number of the row.

    Raises
    ------
    FileError
        If it is damaged, or no column or more than one could hold the pictures.
    """
    import pyarrow

    file = _open(path)
    column, key = _columns(path, file.schema_arrow)
    place = 0
    try:
        wanted = [column] if key is None else [column, key]
        for batch in file.iter_batches(_AT_ONCE, columns=wanted):
            pictures = batch.column(column)
            names = None if key is None else batch.column(key)
            for at in range(len(batch)):
                yield _entry(
                    pictures[at].as_py(), None if names is None else names[at].as_py(), place, prefix
                )
                place += 1
    except pyarrow.ArrowException as error:
        raise FileError(path, f"is damaged or cut off after row {place} ({error})") from error


def _open(path: Path) -> pyarrow.parquet.ParquetFile:
    import pyarrow.parquet

    try:
        # Page by page: whole columns of a row group may be larger than memory.
        return pyarrow.parquet.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False)
    except (pyarrow.ArrowException, OSError) as error:
        raise FileError(path, f"is no Parquet file that can be read ({error})") from error


def _columns(path: Path, schema: pyarrow.Schema) -> tuple[str, str | None]:
    """Return which column holds the pictures, and which names them, if any."""
    found = [field.name for field in schema if _holds_bytes(field.type)]
    by_name = [name for name in _IMAGE_NAMES if name in found]
    if not by_name and len(found) != 1:
        listing = ", ".join(schema.names[:20])
        problem = (
            "has no column of pictures" if not found else "has several columns that may hold the pictures"
        )
        raise FileError(
            path, f"{problem}; its columns are {listing}", "Call the column of encoded pictures `image`."
        )
    column = (by_name or found)[0]
    if schema.names.count(column) > 1:
        raise FileError(
            path, f"has several columns that are called {column}", "Give them names of their own."
        )
    texts = [field.name for field in schema if _is_text(field.type) and schema.names.count(field.name) == 1]
    return column, next((name for name in _KEY_NAMES if name in texts), None)


def _holds_bytes(kind: pyarrow.DataType) -> bool:
    import pyarrow

    if pyarrow.types.is_struct(kind):
        return any(child.name == "bytes" and _is_binary(child.type) for child in kind)
    return _is_binary(kind)


# By their names: the views are types that older versions of pyarrow lack.
def _is_binary(kind: pyarrow.DataType) -> bool:
    return str(kind) in ("binary", "large_binary", "binary_view")


def _is_text(kind: pyarrow.DataType) -> bool:
    import pyarrow

    if pyarrow.types.is_dictionary(kind):
        kind = kind.value_type
    return str(kind) in ("string", "large_string", "string_view")


def _entry(value: object, key: object, place: int, prefix: str) -> Entry:
    data = value
    if isinstance(value, dict):
        data, key = value.get("bytes"), value.get("path") or key
    name = f"{prefix}{key if key else f'row {place}'}"
    if not data:
        return BadEntry(name, place, "is an empty cell of its table")
    if len(data) > MOST_BYTES:
        return BadEntry(name, place, f"holds {len(data) / 1e6:,.0f} MB, more than one picture may")
    return BytesEntry(name, place, data)
