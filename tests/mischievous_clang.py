"""A compiler that plants a bug into all kernels of some pipelines; else it is ziglang's clang.

Called as `mischievous_clang.py MISCHIEF ARGUMENTS...`, where MISCHIEF is JSON, pipeline as kernels/cpu
calls it -> bug, and the arguments are those that build.toolchain.SystemToolchain gives to clang++.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

BUGS = {
    "wrong": "static_cast<unsigned char *>(args->out)[0] ^= 0x40;",
    "crash": "*reinterpret_cast<volatile int *>(8) = 1;",
    "build_error": "planted;",
}

BUGGY_LAUNCH = """
#undef to_launch
extern "C" __attribute__((visibility("default"))) int32_t to_launch(const to_conv_args *args) {{
    const int32_t done = launch_well(args);
    {bug}
    return done;
}}
"""


def main(mischief_json: str, *arguments: str) -> int:
    mischief = json.loads(mischief_json)
    if "--version" in arguments:
        # Part of the build cache's key: binaries with other bugs are other binaries.
        print(f"clang version 19.0.1 with {mischief}")
        return 0
    if "-dumpmachine" in arguments:
        print(f"{platform.machine()}-linux-gnu")
        return 0
    output, source = arguments[arguments.index("-o") + 1], arguments[-1]
    text = Path(source).read_text()
    for pipeline, bug in mischief.items():
        if f"TO_PIPELINE {pipeline}\n" in text:
            text = "#define to_launch launch_well\n" + text + BUGGY_LAUNCH.format(bug=BUGS[bug])
    Path(source).write_text(text)

    spec = find_spec("ziglang")
    folder = Path(spec.submodule_search_locations[0])
    resource = Path("resource")
    resource.mkdir()
    (resource / "include").symlink_to(folder / "lib" / "include")
    linking = ("-shared", "-nostdlib", "-o", output)
    flags = [one for one in arguments[:-1] if one not in linking and not one.startswith("-Wl,")]
    target = f"--target={platform.machine()}-unknown-linux-musl"
    compile_ = [folder / "zig", "clang", "-resource-dir", "resource", "-nostdlibinc", target, *flags]
    link = [folder / "zig", "ld.lld", "-shared", "-z", "noexecstack", output + ".o", "-o", output]
    return subprocess.call([*compile_, "-c", source, "-o", output + ".o"]) or subprocess.call(link)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
