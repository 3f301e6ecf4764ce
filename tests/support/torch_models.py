"""Models composed of PyTorch's own modules, to compare the stages with. A family is a module: torch_<family>.py.

Parameters have the stages' names (module_name), shapes and layout. Importing this where torch cannot be
imported ends the program with 77, which ctest shows as skipped.
"""
import importlib
import sys

try:
    import torch.nn.functional as F
except (ImportError, OSError) as error:
    print(f"skipped: {sys.executable} cannot import torch ({error}). Where there is no GPU, deploy/setup.sh "
          "brings LibTorch's CPU part alone; another Python is named by cmake -DLONGHAUL_TORCH_PYTHON=PATH")
    sys.exit(77)


def causal_attention(queries, keys, values):
    """softmax(QK / sqrt(channels)) V, a head of keys and values repeated for its group of queries."""
    group = queries.shape[1] // keys.shape[1]
    if group == 1:
        return F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
    return F.scaled_dot_product_attention(queries, keys.repeat_interleave(group, dim=1),
                                          values.repeat_interleave(group, dim=1), is_causal=True)


def split(x, heads):
    rows, tokens, channels = x.shape
    return x.view(rows, tokens, heads, channels // heads).transpose(1, 2)


def merge(x):
    return x.transpose(1, 2).flatten(2)


def make_model(spec, vocabulary):
    """`spec`: the keys of a run file's `model`; `vocabulary`: rows of embedding and head."""
    return importlib.import_module(f"torch_{spec['family']}").Model(spec, vocabulary)
