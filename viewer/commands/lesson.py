"""``patchreach lesson``: every step of the lesson as a slide, without a window."""

from __future__ import annotations

from typing import TYPE_CHECKING

from viewer.attention.worked_example import DIAGONAL
from viewer.commands.console import job, say
from viewer.errors import Cancelled, ExportError, PatchreachError
from viewer.export import slide
from viewer.state.display import Display, DisplayValue
from viewer.state.documents import Documents
from viewer.state.lesson import Lesson
from viewer.state.lesson_stage import nine_patches, sample
from viewer.state.lesson_steps import STEPS, slide_name
from viewer.state.requests import SlideRequest
from viewer.state.scene import Scene
from viewer.state.selection import Selection

if TYPE_CHECKING:
    from argparse import Namespace
    from pathlib import Path


def run(options: Namespace) -> int:
    """Write the slides.

    Returns
    -------
    int
        0; 1 where the sample model can't be had, and with it the later steps.

    Raises
    ------
    PatchreachError
        If nothing can be written.
    """
    folder: Path = options.output
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExportError(f"The folder {folder} can't be made ({error.strerror or error}).") from error
    documents, selection, display = Documents(), Selection(), Display(DisplayValue(theme=options.theme))
    scene, lesson = Scene(documents, selection, display), Lesson(documents, selection, display)
    lesson.begin(nine_patches(DIAGONAL))
    ground = options.ground or ("dark" if options.theme == "dark" else "light")
    code = 0
    for index, step in enumerate(STEPS):
        if not lesson.has(step.stage) and not _provide(lesson):
            code = 1
            break
        lesson.go(index)
        path = folder / slide_name(index, f".{options.format}")
        slide.save(scene.value, SlideRequest(index, path, options.scale, ground))
        print(path)
    return code


def _provide(lesson: Lesson) -> bool:
    """Open the sample; say why its steps are missing where it can't be had."""
    try:
        with job() as work:
            lesson.provide("sample", sample(work))
    except Cancelled:
        raise
    except PatchreachError as error:
        missing = [slide_name(index, "") for index, step in enumerate(STEPS) if step.stage == "sample"]
        say(f"{', '.join(missing)} are missing, since they need the sample model. {error}")
        return False
    return True
