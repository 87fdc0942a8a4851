"""What a finished study is written as: tables, figures, the list of failures and the report."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING

from viewer.export import provenance
from viewer.export.study_figure import draw_study
from viewer.export.writing import write_atomically
from viewer.study import summary as summaries
from viewer.study.heads import encode as encode_heads
from viewer.study.heads import heads
from viewer.study.names import FAILED, FIGURES, HEADS, REPORT, SUMMARY
from viewer.study.plot import scatter
from viewer.study.report import report, told

if TYPE_CHECKING:
    from viewer.study.store import Store
    from viewer.study.summary import Summary


def write_results(store: Store, source: str) -> None:
    """Write summary, figures, report and the list of failures of a finished study into its folder.

    Parameters
    ----------
    store
        The study.
    source
        What its pictures' folder or archive is called.

    Raises
    ------
    FileError
        If they can't be written.
    """
    summary = summaries.summarize(store)
    failed = [(one.name, one.reason) for one in store.failed()]
    found = heads(summary, store.position())
    write_atomically(store.folder / SUMMARY, summaries.encode(summary))
    write_atomically(store.folder / HEADS, encode_heads(found, summary))
    if failed:
        write_atomically(store.folder / FAILED, _csv(failed))
    for name in FIGURES:
        format = Path(name).suffix[1:]
        figure = draw_study(scatter(summary), told(summary), _facts(summary), format)
        write_atomically(store.folder / name, figure)
    # Last: who finds it knows that all is there.
    text = report(summary, found, source, failed, store.unverified())
    write_atomically(store.folder / REPORT, text.encode())


def _csv(failed: list[tuple[str, str]]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("image", "reason"))
    writer.writerows(failed)
    return text.getvalue().encode("utf-8", "backslashreplace")


def _facts(summary: Summary) -> dict[str, object]:
    """Return the provenance of a study's figure, which names files without their folders."""
    facts = summary.settings.facts
    model = facts["model"]
    return {
        "patchreach": facts["patchreach"],
        "format": provenance.FORMAT,
        "created": provenance.now(),
        "versions": provenance.versions(model["backend"]),
        "model": {
            **model,
            "name": provenance.model_name(model["name"]),
            "weights": provenance.file_name(model["weights"]),
        },
        "preprocessing": facts["preprocessing"],
        "protocol": facts["protocol"],
        "study": {"images": summary.images, "measures": facts["measures"]},
    }
