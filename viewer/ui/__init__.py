"""The window: PySide6 and pyqtgraph, one file a panel, each a view of `viewer.state`."""
