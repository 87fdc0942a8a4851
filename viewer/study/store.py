"""What a study keeps on disk: a log of parts, each committed by one rename.

A part is a Parquet file of the values of some pictures; those that failed stand in its metadata. It is
written under another name, flushed, and renamed: a part either is there, whole, or it is not. Parts are
numbered without gaps, so after a process was killed whatever is there is what was done, and everything else
is done again. All parts together are one table, which any program reads as a data set.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from viewer.errors import FileError, StudyError
from viewer.study.decoding import Failed
from viewer.study.entries import digest
from viewer.study.locking import hold
from viewer.study.names import LOCK, SETTINGS, VALUES
from viewer.study.settings import Settings, read

if TYPE_CHECKING:
    from types import TracebackType

    import numpy.typing as npt
    import pyarrow

    from viewer.attention.position_share import PositionShare
    from viewer.study.measuring import Measured

_KEY = b"patchreach"
_SUMS = "position-{}.npz"
_BLOCK = 128  # images counted together; fixed, so that sums do not depend on where parts end


class Store:
    """The folder of one study, held by one process at a time.

    Parameters
    ----------
    folder
        Where it lies.
    settings
        What it is of.
    """

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder, self.settings = folder, settings
        self._lock: int | None = None

    @classmethod
    def create(cls, folder: Path, settings: Settings) -> Store:
        """Begin a study in a folder that does not exist or is empty.

        Raises
        ------
        FileError
            If there is something already, or it can't be written.
        """
        require_new(folder)
        try:
            (folder / VALUES).mkdir(parents=True, exist_ok=True)
            text = json.dumps(settings.facts, indent=1, ensure_ascii=False) + "\n"
            write_whole(folder / SETTINGS, text.encode())
        except OSError as error:
            raise _unwritable(folder, error) from error
        return cls(folder, settings)

    @classmethod
    def at(cls, folder: Path) -> Store:
        """Return the study that lies in a folder.

        Raises
        ------
        FileError
            If there is none.
        """
        return cls(folder, read(folder))

    def __enter__(self) -> Store:
        """Hold the study, and clear away what was never committed.

        Raises
        ------
        FileError
            If another process holds it.
        """
        self._lock = hold(self.folder)
        for draft in (*self.folder.glob("*.draft"), *(self.folder / VALUES).glob("*.draft")):
            draft.unlink()
        current = self._sums(self.parts)
        for sums in self.folder.glob(_SUMS.format("*")):
            if sums != current:
                sums.unlink()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        if self._lock is not None:
            os.close(self._lock)

    def discard(self) -> None:
        """Take a study away in which no picture could be measured, and let go of it.

        Only its own files go, and then the folder if nothing else lies in it.
        """
        parts = (self._part(number) for number in range(self.parts))
        own = [self.folder / SETTINGS, *parts, *self.folder.glob(_SUMS.format("*"))]
        for path in own:
            path.unlink(missing_ok=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        (self.folder / LOCK).unlink(missing_ok=True)
        for folder in (self.folder / VALUES, self.folder):
            with suppress(OSError):  # somebody put something into it, or works in it
                folder.rmdir()

    # Writing

    def commit(
        self, measured: list[Measured], failed: list[Failed], position: PositionShare | None = None
    ) -> None:
        """Add a part; when this returns, it survives whatever happens to the process.

        Parameters
        ----------
        measured, failed
            The pictures of the part.
        position
            Sums over these and all pictures before. They are written ahead, under the number of parts they
            belong to, so that of a process that is killed in between the ones before still count.

        Raises
        ------
        FileError
            If it can't be written (a full disk, say).
        """
        import pyarrow.parquet

        parts = self.parts
        path = self._part(parts)
        draft = path.with_suffix(".draft")
        facts = {"images": len(measured), "failed": failed}
        table = self._table(measured).replace_schema_metadata({_KEY: json.dumps(facts)})
        try:
            if position is not None:
                sums = io.BytesIO()
                np.savez(sums, **position.to_arrays())
                write_whole(self._sums(parts + 1), sums.getvalue())
            with draft.open("wb") as file:
                pyarrow.parquet.write_table(table, file, compression="zstd")
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
            self._sums(parts).unlink(missing_ok=True)
        except OSError as error:
            raise _unwritable(path, error) from error

    def _table(self, measured: list[Measured]) -> pyarrow.Table:
        import pyarrow

        count = len(self.settings.layer_of)
        shape = (len(measured), count, len(self.settings.measures))
        values = np.stack([one.values for one in measured]) if measured else np.empty(shape, np.float32)

        def per_image(found: list[Any], kind: pyarrow.DataType) -> pyarrow.Array:
            index = pyarrow.array(np.repeat(np.arange(len(measured), dtype=np.int32), count))
            return pyarrow.array(found, kind).take(index)

        columns = {
            "image": per_image([printable(one.name) for one in measured], pyarrow.string()),
            "place": per_image([one.place for one in measured], pyarrow.int64()),
            "image_sha256": per_image([one.sha256 for one in measured], pyarrow.string()),
            "verified": per_image([one.verified for one in measured], pyarrow.bool_()),
            "layer": pyarrow.array(np.tile(np.array(self.settings.layer_of, np.int32), len(measured))),
            "head": pyarrow.array(np.tile(np.array(self.settings.head_of, np.int32), len(measured))),
        }
        for at, name in enumerate(self.settings.measures):
            columns[name] = pyarrow.array(np.ascontiguousarray(values[:, :, at]).reshape(-1))
        return pyarrow.table(columns)

    # Reading

    @property
    def parts(self) -> int:
        """Number of committed parts."""
        low, high = 0, 1
        while self._part(high - 1).exists():
            low, high = high, 2 * high
        # Numbered without gaps: a few looks instead of a listing of all.
        while low < high - 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._part(middle - 1).exists() else (low, middle)
        return low

    def counts(self) -> tuple[int, int]:
        """Return how many pictures were measured, and how many failed."""
        done = failed = 0
        for _, facts in self._facts():
            done, failed = done + facts["images"], failed + len(facts["failed"])
        return done, failed

    def failed(self) -> Iterator[Failed]:
        """Yield the pictures that failed."""
        for _, facts in self._facts():
            yield from (Failed(*one) for one in facts["failed"])

    def unverified(self) -> int:
        """Return of how many pictures not every layer was verified."""
        heads = len(self.settings.layer_of)
        return sum(
            int((~_column(self._part(part), "verified").to_numpy(zero_copy_only=False)[::heads]).sum())
            for part in range(self.parts)
        )

    def done(self) -> Done:
        """Return which pictures were measured or have failed."""
        heads, found = len(self.settings.layer_of), []
        for path, facts in self._facts():
            names = _column(path, "image").to_pylist()[::heads]
            places = _column(path, "place").to_pylist()[::heads]
            found += [digest(name, place) for name, place in zip(names, places, strict=True)]
            found += [digest(printable(name), place) for name, place, _ in facts["failed"]]
        return Done(found)

    def position(self) -> PositionShare | None:
        """Return the sums that belong to what is committed; None where there are none.

        Raises
        ------
        FileError
            If they are damaged.
        """
        from viewer.attention.position_share import PositionShare

        path = self._sums(self.parts)
        try:
            with np.load(path) as arrays:
                return PositionShare.from_arrays(arrays)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise FileError(path, f"is damaged ({error})") from error

    def blocks(self) -> Iterator[npt.NDArray[np.float32]]:
        """Yield the values of so many images at a time, float32 (images, heads, measures), in their order."""
        kept: list[npt.NDArray[np.float32]] = []
        held = 0
        for part in range(self.parts):
            values = self.values(part)
            while held + len(values) >= _BLOCK:
                taken = _BLOCK - held
                yield np.concatenate([*kept, values[:taken]])
                kept, held, values = [], 0, values[taken:]
            kept.append(values)
            held += len(values)
        if held:
            yield np.concatenate(kept)

    def values(self, part: int) -> npt.NDArray[np.float32]:
        """Return the values of a part, float32 (images, heads, measures)."""
        names = list(self.settings.measures)
        table = _read(self._part(part), names)
        columns = [table.column(name).to_numpy() for name in names]
        return np.stack(columns, axis=1).reshape(-1, len(self.settings.layer_of), len(names))

    def _facts(self) -> Iterator[tuple[Path, dict[str, Any]]]:
        import pyarrow.parquet

        for part in range(self.parts):
            path = self._part(part)
            try:
                yield path, json.loads(pyarrow.parquet.read_schema(path).metadata[_KEY])
            except (OSError, pyarrow.ArrowException, KeyError, TypeError, ValueError) as error:
                raise _damaged(path, error) from error

    def _sums(self, parts: int) -> Path:
        return self.folder / _SUMS.format(f"{parts:06d}")

    def _part(self, number: int) -> Path:
        return self.folder / VALUES / f"part-{number:06d}.parquet"


def _damaged(path: Path, error: Exception) -> StudyError:
    out = "Take it out together with all later parts"
    return StudyError(
        path,
        f"is damaged ({error})",
        f"{out}, and go on by --resume.",
        f"{out}, open the study again and press “Go on”.",
    )


class Done:
    """Which pictures are done, 24 bytes for each, however long their names are."""

    def __init__(self, digests: Iterable[bytes]) -> None:
        self._sorted = np.unique(np.array(list(digests), dtype="S24"))

    def __len__(self) -> int:
        return len(self._sorted)

    def has(self, name: str, place: int) -> bool:
        """Return whether a picture is among them."""
        wanted = np.array(digest(printable(name), place), dtype="S24")
        at = int(np.searchsorted(self._sorted, wanted))
        return at < len(self._sorted) and self._sorted[at] == wanted


def require_new(folder: Path) -> None:
    """Refuse a folder that is taken.

    Raises
    ------
    FileError
        If it is a study, holds anything else, or is no folder.
    """
    if (folder / SETTINGS).exists():
        raise taken(folder)
    if folder.exists() and not folder.is_dir():
        raise FileError(folder, "can't take a study, since it is a file")
    if folder.is_dir() and any(folder.iterdir()):
        raise StudyError(folder, "is not empty", "Name a new folder with -o.", "Name a new folder.")


def taken(folder: Path) -> StudyError:
    """Return what is said of a folder that holds a study where a new one was to begin."""
    return StudyError(
        folder,
        "holds a study already",
        "Go on with it by --resume, or name another folder with -o.",
        "Open it (File, Open study…) and press “Go on”, or name a new folder.",
    )


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that appears whole or not at all, and survives a crash of the machine."""
    draft = path.with_name(f"{path.name}.draft")
    with draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def printable(name: str) -> str:
    """Return a name as text that can be written: bytes of another encoding become escapes."""
    return name.encode("utf-8", "backslashreplace").decode()


def _read(path: Path, columns: list[str]) -> pyarrow.Table:
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            return file.read(columns)
    except (OSError, pyarrow.ArrowException) as error:
        raise _damaged(path, error) from error


def _column(path: Path, name: str) -> pyarrow.ChunkedArray:
    return _read(path, [name]).column(name)


def _unwritable(path: Path, error: OSError) -> FileError:
    return FileError(path, f"can't be written ({error.strerror or error})")
