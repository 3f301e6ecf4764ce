"""Finds and loads liblonghaul_torch_ops.so."""
import os
import pathlib

import torch

NAME = "liblonghaul_torch_ops.so"
VARIABLE = "LONGHAUL_TORCH_OPS"


def find():
    """The library that LONGHAUL_TORCH_OPS names, or the one that was installed with this package or beside it, or the checkout's."""
    named = os.environ.get(VARIABLE)
    if named:
        if not os.path.isfile(named):
            raise ImportError(f"{VARIABLE}={named}: there is no such file; expected the path of {NAME}")
        return pathlib.Path(named)
    package = pathlib.Path(__file__).resolve().parent
    places = [package / "lib" / NAME, package.parent / "longhaul_programs" / "bundle" / "lib" / NAME, package.parents[1] / "build" / "release" / "lib" / NAME]
    for place in places:
        if place.is_file():
            return place
    raise ImportError(f"expected {NAME} at {' or '.join(map(str, places))}; build it in a checkout (cmake --preset "
                      f"release && cmake --build --preset release --target torch_ops), or set {VARIABLE} to its path")


def load():
    path = find()
    try:
        torch.ops.load_library(path)
    except OSError as error:
        raise ImportError(f"cannot load {path} into torch {torch.__version__}: {error}; build it on this machine, "
                          "with the torch that you use") from error
    built = torch.ops.longhaul._built_for_torch()
    if torch.__version__.split(".")[:2] != built.split("."):
        raise ImportError(f"{path} was built for torch {built}, this is torch {torch.__version__}; use torch {built}")
