"""The version of the package, read by `pyproject.toml` too."""

__version__ = "0.1.0"
