"""tile-oracle: does the model that picks a GPU kernel pick well?"""

from tile_oracle.version import __version__

__all__ = ["__version__"]
