"""What lies in the folder of a study."""

from __future__ import annotations

SETTINGS = "patchreach-study.json"
"""What is studied and how; written once, before anything else."""

LOCK = ".lock"
"""Held by the process that works on the study."""

VALUES = "values"
"""Folder of Parquet files, together one table: a row for each image, layer and head."""

SUMMARY = "summary.parquet"
"""A row for each layer, head and measure: mean, deviation, error, quartiles."""

HEADS = "heads.csv"
"""A row for each head: its kind and why, position's share, the mean of every measure."""

FIGURES = ("figure.png", "figure.svg")
"""The scatter with error bars."""

REPORT = "report.md"
"""Protocol, model, counts and the finding in words."""

FAILED = "failed.csv"
"""The pictures that could not be studied, and why; there only if there are any."""
