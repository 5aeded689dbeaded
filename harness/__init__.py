"""tile-oracle: does the model that picks a GPU kernel pick well?"""

from harness.version import __version__

__all__ = ["__version__"]
