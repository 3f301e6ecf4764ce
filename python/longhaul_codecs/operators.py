"""Shortcuts, functions for tracing and gradients of torch.ops.longhaul."""
import torch
from torch._subclasses.fake_tensor import DynamicOutputShapeException

from .library import load

load()
_ops = torch.ops.longhaul
HEADER_BYTES = 64  # no blob is smaller


def codec_names():
    """What codec strings begin with: "none", "tah", ..."""
    return _ops.codec_names()


# For tracing: what the operators return, without the data.

def _check(x, codec, direction):
    """Raises what the operators raise. Returns whether all blobs of a shape have one size."""
    return _ops._check(x.dtype, x.dim(), codec, direction)


def _dynamic(least=0):
    return torch.library.get_ctx().new_dynamic_size(min=least)


def _most_bytes(x, codec):
    if not all(isinstance(size, int) for size in x.shape):
        try:
            return _dynamic(HEADER_BYTES)
        except DynamicOutputShapeException:
            pass  # so what is traced holds for this shape alone
    return _ops.max_encoded_bytes([int(size) for size in x.shape], codec)


@torch.library.register_fake("longhaul::encode")
def _(x, codec, *, seed=0, direction="forward"):
    fixed_size = _check(x, codec, direction)
    return x.new_empty(_most_bytes(x, codec) if fixed_size else _dynamic(HEADER_BYTES), dtype=torch.uint8)


@torch.library.register_fake("longhaul::encode_padded")
def _(x, codec, *, seed=0, direction="forward"):
    _check(x, codec, direction)
    return x.new_empty(_most_bytes(x, codec), dtype=torch.uint8), x.new_empty((), dtype=torch.int64)


@torch.library.register_fake("longhaul::decode")
def _(blob, shape=None, *, dtype=None, codec=None, padded=False):
    if dtype is None:
        raise ValueError("decode is traced without a blob's contents: expected dtype=, e.g. dtype=torch.bfloat16")
    if shape is None:
        shape = [_dynamic(), _dynamic(), _dynamic()]
    return blob.new_empty(shape, dtype=dtype)


@torch.library.register_fake("longhaul::roundtrip")
def _(x, codec, backward_codec=None, *, seed=0, direction="forward"):
    for each in (codec, backward_codec):
        if each is not None:
            _check(x, each, direction)
    return x.new_empty(x.shape)


# Rounding has no derivative of use. What is defined instead: the gradient passes as it is, or as the other side
# of a link would see it.

def _save_for_backward(ctx, inputs, keyword_only_inputs, output):
    ctx.backward_codec = inputs[2]
    ctx.seed = keyword_only_inputs["seed"]
    ctx.back = "backward" if keyword_only_inputs["direction"] == "forward" else "forward"


def _backward(ctx, gradient):
    if ctx.backward_codec is not None:
        gradient = _ops.roundtrip(gradient, ctx.backward_codec, seed=ctx.seed, direction=ctx.back)
    return gradient, None, None


torch.library.register_autograd("longhaul::roundtrip", _backward, setup_context=_save_for_backward)


# tah_encode, tah_decode and so on, for every codec that the library has.

def _text(name, parameters):
    return f"{name}:{parameters}" if parameters else name


def _define_shortcuts(library, name):
    def encode(x, parameters="", *, seed=0, direction="forward"):
        return _ops.encode(x, _text(name, parameters), seed=seed, direction=direction)

    def decode(blob, shape=None, *, dtype=None, padded=False):
        return _ops.decode(blob, shape, dtype=dtype, codec=name, padded=padded)

    library.define(f'{name}_encode(Tensor x, str parameters="", *, SymInt seed=0, str direction="forward") -> Tensor',
                   tags=(torch.Tag.pt2_compliant_tag,))
    library.define(f"{name}_decode(Tensor blob, SymInt[]? shape=None, *, ScalarType? dtype=None, bool padded=False) "
                   "-> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
    library.impl(f"{name}_encode", encode, "CompositeImplicitAutograd")
    library.impl(f"{name}_decode", decode, "CompositeImplicitAutograd")


_fragment = torch.library.Library("longhaul", "FRAGMENT")  # its operators live as long as it does
for _name in codec_names():
    _define_shortcuts(_fragment, _name)
