"""What the headless commands do; `viewer.cli` reads the command line."""
