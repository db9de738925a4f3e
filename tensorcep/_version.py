"""The one place where the version is written; pyproject.toml and the saved files read it from here."""

__version__ = "0.2.0"
