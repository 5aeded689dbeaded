"""Hatch's build hook: puts the compiled native selector into a wheel (`make installed`).

TILE_ORACLE_WHEEL_MACHINE names the machine, x86_64 or aarch64; ziglang compiles for both on either. Without
it the wheel is for any platform, and the library is compiled when it is first needed.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MACHINE_VARIABLE = "TILE_ORACLE_WHEEL_MACHINE"


class NativeSelectorHook(BuildHookInterface[BuilderConfig]):
    """Compiles the library before the wheel is written, and removes it afterwards."""

    PLUGIN_NAME = "custom"
    _work: Path | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        machine = os.environ.get(MACHINE_VARIABLE)
        if not machine or version == "editable" or self.target_name != "wheel":
            return
        sys.path.insert(0, str(Path(self.root) / "harness"))
        from tile_oracle.compiling.cache import default_cache_folder
        from tile_oracle.selector import native_library, prebuilt_library

        if machine not in prebuilt_library.MACHINES:
            known = " or ".join(prebuilt_library.MACHINES)
            raise SystemExit(f"{MACHINE_VARIABLE} is {machine!r}: set it to {known}")
        library = native_library.built_for(machine, prebuilt_library.GLIBC, default_cache_folder())
        self._work = Path(tempfile.mkdtemp(prefix="tile-oracle-wheel-"))
        facts = self._work / prebuilt_library.FACTS_FILE
        facts.write_text(json.dumps(prebuilt_library.facts_of(native_library.built_from(), machine)) + "\n")
        place = Path("tile_oracle") / prebuilt_library.FOLDER
        build_data["force_include"][str(library)] = str(place / prebuilt_library.LIBRARY_FILE)
        build_data["force_include"][str(facts)] = str(place / prebuilt_library.FACTS_FILE)
        build_data["pure_python"] = False
        build_data["tag"] = prebuilt_library.platform_tag(machine)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._work is not None:
            shutil.rmtree(self._work, ignore_errors=True)
