"""statlib keeps derived data exact under concurrent saves, and lets operators prove it."""

from importlib.metadata import version

__version__ = version("statlib")
__all__ = ["__version__"]
