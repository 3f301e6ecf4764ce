"""Puts the libraries of a build into the package, and the version of CMakeLists.txt; all else is in pyproject.toml."""
import os
import pathlib
import re
import shutil

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

SOURCE = pathlib.Path(__file__).resolve().parents[1]
VERSION = re.search(r"project\(longhaul VERSION ([0-9.]+)", (SOURCE / "CMakeLists.txt").read_text()).group(1)
BUILD = pathlib.Path(os.environ.get("LONGHAUL_BUILD", SOURCE / "build" / "release"))
NEEDED, FOR_GPUS = "liblonghaul_torch_ops.so", "liblonghaul_cuda.so"


class BuildWithLibraries(build_py):
    def run(self):
        super().run()
        if not (BUILD / "lib" / NEEDED).is_file():
            raise SystemExit(f"expected {BUILD / 'lib' / NEEDED}; run cmake --build --preset release --target torch_ops "
                             "first, or set LONGHAUL_BUILD to the build's folder")
        folder = pathlib.Path(self.build_lib) / "longhaul_codecs" / "lib"
        folder.mkdir(parents=True, exist_ok=True)
        for name in (NEEDED, FOR_GPUS):
            if (BUILD / "lib" / name).is_file():
                shutil.copy2(BUILD / "lib" / name, folder)


class OfThisMachine(Distribution):
    def has_ext_modules(self):
        return True


setup(version=VERSION, cmdclass={"build_py": BuildWithLibraries}, distclass=OfThisMachine)
