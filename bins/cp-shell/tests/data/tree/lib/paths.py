"""Where things lie."""

ROOT = "."
