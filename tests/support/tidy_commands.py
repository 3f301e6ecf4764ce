"""Makes a build's compile commands fit for clang-tidy.

usage: tidy_commands.py BUILD OUT <FILES

Writes OUT/compile_commands.json from that of BUILD. Reads names of sources, one on each line, and prints what
clang-tidy has to be given to look at them all: the joined unit in which a source lies, otherwise the source.
"""

import json
import pathlib
import re
import sys


def fit(command):
    """Without what GCC alone knows, and without its precompiled header."""
    command = re.sub(r"-Wno-stringop-overflow|-Wno-subobject-linkage|--param [^ ]+", "", command)
    return re.sub(r"-Winvalid-pch -include [^ ]*cmake_pch\.hxx", "", command)


def main():
    build, out = (pathlib.Path(argument) for argument in sys.argv[1:])
    # nvcc's options would be taken for headers that lie beside GPU code.
    commands = [c for c in json.loads((build / "compile_commands.json").read_text()) if not c["file"].endswith(".cu")]
    for command in commands:
        command["command"] = fit(command["command"])
    (out / "compile_commands.json").write_text(json.dumps(commands, indent=1))

    unit_of = {}
    for command in commands:
        unit = pathlib.Path(command["file"])
        if unit.parent.name == "Unity":
            for source in re.findall(r'^#include "(.*)"$', unit.read_text(), re.MULTILINE):
                unit_of[source] = str(unit)
    sources = sys.stdin.read().split("\n")[:-1]
    for name in dict.fromkeys(unit_of.get(str(pathlib.Path(source).absolute()), source) for source in sources):
        print(name)


if __name__ == "__main__":
    main()
