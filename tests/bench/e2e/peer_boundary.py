"""What torch's stages send each other: fp32, bf16, or codes of 8 bits in plain PyTorch.

torch.distributed.pipelining sends a stage's output as it is, and the gradient in the same shape and dtype.
So bytes of codes travel as the bit patterns of a bf16 tensor, on which nothing computes: `Pack` is the last
operation of a stage, `Unpack` the first of the next one, and each does the other's work for gradients.
"""
import torch

SCALE_BYTES = 4  # fp32, one a token


def encode_int8(values):
    """(..., channels) to (..., packed_width(channels)) of bf16: codes, then a scale for each token."""
    values = values.float()
    scale = values.abs().amax(dim=-1, keepdim=True) / 127
    codes = torch.round(values / torch.where(scale > 0, scale, 1)).to(torch.int8)
    return torch.cat([codes.view(torch.uint8), scale.view(torch.uint8)], dim=-1).view(torch.bfloat16)


def decode_int8(packed):
    """fp32 of the tensor's shape before encode_int8."""
    data = packed.contiguous().view(torch.uint8)
    codes, scale = data[..., :-SCALE_BYTES].view(torch.int8), data[..., -SCALE_BYTES:].contiguous()
    return codes.float() * scale.view(torch.float32)


def packed_width(channels):
    """Elements of bf16 that a token takes; channels must be even."""
    if channels % 2:
        raise ValueError(f"int8 boundaries: expected an even number of channels, got {channels}")
    return (channels + SCALE_BYTES) // 2


class Pack(torch.autograd.Function):
    """Activations to codes; gradients, which come as codes, to numbers."""

    @staticmethod
    def forward(ctx, values):
        ctx.dtype = values.dtype
        return encode_int8(values)

    @staticmethod
    def backward(ctx, packed):
        return decode_int8(packed).to(ctx.dtype)


class Unpack(torch.autograd.Function):
    """Codes to activations; gradients to codes."""

    @staticmethod
    def forward(ctx, packed):
        return decode_int8(packed)

    @staticmethod
    def backward(ctx, gradient):
        return encode_int8(gradient)


class Boundary:
    """How a tensor of hidden states travels: `kind` is fp32, bf16 or int8."""

    def __init__(self, kind, channels):
        if kind not in ("fp32", "bf16", "int8"):
            raise ValueError(f"boundary: expected fp32, bf16 or int8, got '{kind}'")
        self.kind = kind
        self.width = packed_width(channels) if kind == "int8" else channels
        self.dtype = torch.float32 if kind == "fp32" else torch.bfloat16

    def outgoing(self, x):
        return Pack.apply(x) if self.kind == "int8" else x.to(self.dtype)

    def incoming(self, x):
        return Unpack.apply(x) if self.kind == "int8" else x.float()
