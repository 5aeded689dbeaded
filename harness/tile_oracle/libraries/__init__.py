"""Vendors' libraries as kernel sources: where they are, and the algorithms that they offer for a problem.

Nothing here loads a library. A child process asks it (tile_oracle.device.library_offers).
"""
