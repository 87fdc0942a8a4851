"""The window: panels, dialogs and jobs over `viewer.state`."""

from viewer.ui.constants_guard import protect_constants

protect_constants()
