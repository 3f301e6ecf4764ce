"""longhaul's codecs as operators of PyTorch: torch.ops.longhaul (README.md).

Importing this package registers them.
"""
from . import operators

codec_names = operators.codec_names
__all__ = ["codec_names"]
