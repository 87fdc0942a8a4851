"""A what-if as part of the table of measures: after, before, and what became of classes and features."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from viewer.export import tables
from viewer.export.plain import plain
from viewer.state.before_after import class_rows, features

if TYPE_CHECKING:
    from viewer.state.display import Protocol
    from viewer.state.what_if import WhatIfResult


def what_if_entry(result: WhatIfResult, protocol: Protocol) -> dict[str, Any]:
    """Return the measures of the changed model, with those of before under ``what_if``, ready for JSON.

    The keys of ``what_if`` are ``changes`` and ``note`` (as in every changed table), ``features_cosine``
    (None where it is not defined) and ``features_of``, ``classes`` (each with name and probability, 0 to 1,
    before and after), and ``before``: the layers of the model as it is.

    Parameters
    ----------
    result
        Of any changes.
    protocol
        Of the distances.
    """
    found = tables.entry(result.after, result.measures_after, protocol)
    alike = features(result.before, result.after)
    found["what_if"] |= {
        "features_cosine": alike.cosine if math.isfinite(alike.cosine) else None,
        "features_of": alike.of,
        "classes": [
            {"class": plain(row.label), "before": row.before, "after": row.after}
            for row in class_rows(result.before, result.after)
        ],
        "before": tables.entry(result.before, result.measures_before, protocol)["layers"],
    }
    return found
