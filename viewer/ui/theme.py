"""The window's look: Qt's Fusion style in the colours and type size of a theme."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtGui import QColor, QFont, QPalette
from PySide6.QtWidgets import QApplication

if TYPE_CHECKING:
    from viewer.state.palette import Palette

_Role = QPalette.ColorRole
CONTROLS = 11.0  # points, at most: the bar's controls are for who speaks, not for the lecture hall


def apply_theme(application: QApplication, palette: Palette) -> None:
    """Dress every window of the program, those that are open included."""
    if application.style().objectName() != "fusion":
        application.setStyle("Fusion")
    font = QFont(application.font())
    font.setPointSizeF(palette.points)
    application.setFont(font)
    application.setPalette(qt_palette(palette))
    for kind in ("QCheckBox", "QSlider", "QRadioButton"):
        application.setPalette(_seen_palette(palette), kind)
    application.setStyleSheet(_style(palette))


def qt_palette(palette: Palette) -> QPalette:
    """Translate a theme into Qt's colour roles."""
    ground, panel, text = QColor(palette.ground), QColor(palette.panel), QColor(palette.text)
    faint, accent = QColor(palette.faint), QColor(palette.accent)
    dark = ground.lightnessF() < 0.5
    found = QPalette(ground)
    for role, colour in (
        (_Role.Window, ground),
        (_Role.Base, panel),
        (_Role.AlternateBase, QColor(palette.empty)),
        (_Role.Button, panel if dark else ground),
        (_Role.WindowText, text),
        (_Role.Text, text),
        (_Role.ButtonText, text),
        (_Role.ToolTipBase, panel),
        (_Role.ToolTipText, text),
        (_Role.PlaceholderText, faint),
        (_Role.BrightText, accent),
        (_Role.Link, accent),
        (_Role.Highlight, accent),
        (_Role.Accent, accent),
        (_Role.HighlightedText, readable_on(accent)),
    ):
        found.setColor(role, colour)
    for role in (_Role.WindowText, _Role.Text, _Role.ButtonText):
        found.setColor(QPalette.ColorGroup.Disabled, role, faint)
    return found


def _seen_palette(palette: Palette) -> QPalette:
    """Return the colours of small controls: Fusion draws them nearly as dark as a dark ground they lie on."""
    found = qt_palette(palette)
    if QColor(palette.ground).lightnessF() < 0.5:
        found.setColor(_Role.Window, QColor(palette.faint))
        found.setColor(_Role.Base, QColor(palette.empty))
        found.setColor(_Role.Button, QColor(palette.text))
    return found


def readable_on(colour: QColor) -> QColor:
    """Return black or white, whichever has more contrast on a colour (WCAG's relative luminance)."""
    channels = [colour.redF(), colour.greenF(), colour.blueF()]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return QColor("#000000") if luminance > 0.179 else QColor("#ffffff")


def _style(palette: Palette) -> str:
    """Return what a palette can't say; widgets are named by the `kind` property they carry."""
    small = max(palette.points - 1.0, 8.0)
    controls = min(palette.points, CONTROLS)
    return f"""
        QToolTip {{
            color: {palette.text}; background: {palette.panel};
            border: 1px solid {palette.faint}; padding: 3px;
        }}
        QToolBar {{ border: none; spacing: 6px; padding: 2px 4px; }}
        QListWidget#strip::item:selected {{
            background: {palette.empty}; border-left: 4px solid {palette.accent};
        }}
        QSplitter::handle {{ background: {palette.empty}; }}
        QSplitter::handle:hover {{ background: {palette.accent}; }}
        *[kind="faint"] {{ color: {palette.faint}; font-size: {small}pt; }}
        QToolBar QWidget, #maps QWidget, #choices QWidget, #views {{ font-size: {controls}pt; }}
        QToolBar *[kind="faint"], #maps *[kind="faint"] {{ font-size: {controls - 1.0}pt; }}
        *[kind="headline"] {{ font-size: {palette.points * 1.8}pt; }}
        *[kind="bad"] {{ color: {palette.accent}; font-size: {small}pt; }}
        *[kind="verified"] {{ color: {palette.query}; }}
        *[kind="unverified"] {{ color: {palette.accent}; }}
        QFrame[kind="message"] {{
            background: {palette.panel}; border: 1px solid {palette.faint}; border-radius: 4px;
        }}
        QFrame[kind="drop"] {{ border: 2px dashed {palette.faint}; border-radius: 10px; }}
        QFrame[kind="drop"][over="true"] {{ border-color: {palette.accent}; }}
    """
