"""Figures, tables and provenance, drawn from `viewer.state`, never from widgets."""
