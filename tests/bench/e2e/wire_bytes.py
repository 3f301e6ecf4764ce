"""What a run must put on the wire, from the closed formulas of its formats alone.

Sizes of codecs: codec/plain/format.h, codec/fixed/format.h, codec/tah/format.h,
codec/gauss/format.h. Headers:
proto/wire/link_header.h, proto/wire/tensor_header.h. Written anew here, so that a benchmark
compares two things that can differ. Pure.
"""

BLOB_HEADER = 64
LINK_HEADER = 64
TENSOR_HEADER = 96
STEP_MESSAGE = 16
FRAME_PAYLOAD = 64 * 1024

# Ethernet, IPv4, TCP with timestamps, as a shaping qdisc counts a full segment of MTU 1500.
SEGMENT_HEADERS = 14 + 20 + 32
SEGMENT_PAYLOAD = 1500 - 20 - 32

PLAIN_BYTES = {"none": 4, "bf16": 2, "fp16": 2}


def ceil_divide(a, b):
    return -(-a // b)


def align(count, to):
    return ceil_divide(count, to) * to


def parse_codec(text):
    """'fixed:bits=4,rounding=nearest' -> ('fixed', {'bits': '4', ...}); canonical: all is there."""
    name, _, rest = text.partition(":")
    return name, dict(part.split("=") for part in rest.split(",")) if rest else {}


def fixed_bytes(parameters, samples, tokens, channels):
    tile = int(parameters["tile"])
    tiles = samples * tokens * ceil_divide(channels, tile)
    sections = (2 * samples, 2 * tiles, tiles * int(parameters["bits"]) * tile // 8)
    return BLOB_HEADER + sum(align(section, 16) for section in sections)


def tah_bytes(parameters, samples, tokens, channels):
    tile = int(parameters["tile"])
    token_tiles = ceil_divide(channels, tile)
    alloc = parameters["alloc"]
    alloc_tiles = token_tiles if alloc == "token" else min(int(alloc) // tile, token_tiles)
    tiles, allocs = tokens * token_tiles, tokens * ceil_divide(token_tiles, alloc_tiles)
    fours = int(float(parameters["p"]) * 65536 + 0.5) * allocs + 32768 >> 16
    pivot_bits = tile.bit_length() - 1
    sections = (2 * samples, 2 * samples * tiles, 2 * samples * tiles,
                samples * align(ceil_divide(tiles * pivot_bits, 8), 8),
                samples * align(ceil_divide(allocs, 8), 8), samples * tiles * 3 * tile // 8,
                samples * fours * alloc_tiles * tile // 8)
    return BLOB_HEADER + sum(align(section, 16) for section in sections)


def gauss_bytes(parameters, samples, tokens, channels):
    block = int(parameters["block"])
    blocks, last = ceil_divide(channels, block), 64
    while last < channels - (blocks - 1) * block:
        last *= 2
    padded = (blocks - 1) * block + last
    sections = (2 * samples, samples * tokens * blocks,
                samples * tokens * padded * int(parameters["bits"]) // 8)
    return BLOB_HEADER + sum(align(section, 16) for section in sections)


def blob_bytes(codec, samples, tokens, channels):
    """An encoded tensor of samples x tokens x channels; `codec` is canonical."""
    name, parameters = parse_codec(codec)
    if name in PLAIN_BYTES:
        return BLOB_HEADER + samples * tokens * channels * PLAIN_BYTES[name]
    if name == "fixed":
        return fixed_bytes(parameters, samples, tokens, channels)
    if name == "tah":
        return tah_bytes(parameters, samples, tokens, channels)
    if name == "gauss":
        return gauss_bytes(parameters, samples, tokens, channels)
    raise ValueError(f"no closed formula is known here for codec '{name}'")


def stream_bytes(blob):
    """A blob with the headers of its chunks, as TCP gets it."""
    chunks = ceil_divide(blob, FRAME_PAYLOAD - TENSOR_HEADER)
    return blob + chunks * (TENSOR_HEADER + LINK_HEADER)


def on_ethernet(stream):
    """With the headers of full segments: a stream that is never idle has few others."""
    return stream * (SEGMENT_PAYLOAD + SEGMENT_HEADERS) / SEGMENT_PAYLOAD


TIED = 3  # Edge.Kind, proto/longhaul/v1/plan.proto


def expected_bytes(plan, model, train):
    """{worker name: {'uplink': bytes, 'downlink': bytes}} of a whole run.

    `plan` as `longhaul status --json` prints it; `model` and `train` of its run file: context,
    hidden, microbatches, microbatch_size, steps. No validation.
    """
    shape = (train["microbatch_size"], model["context"], model["hidden"])
    step_message = LINK_HEADER + TENSOR_HEADER + STEP_MESSAGE
    name_of = {(cell["id"]["replica"], cell["id"]["stage"]): cell["worker_name"]
               for cell in plan["assignment"]["cells"]}
    result = {name: {"uplink": 0, "downlink": 0} for name in name_of.values()}
    for edge in plan["assignment"]["edges"]:
        if edge.get("kind") == TIED:
            raise ValueError("what goes over a tied edge hangs on the tokens")
        upper, lower = (name_of[edge[end]["replica"], edge[end]["stage"]] for end in ("from", "to"))
        for flow, sender, receiver in ((edge["forward"], upper, lower),
                                       (edge["backward"], lower, upper)):
            blob = blob_bytes(flow["codec"], *shape)
            step = train["microbatches"] * stream_bytes(blob) + step_message
            sent = train["steps"] * on_ethernet(step)
            result[sender]["uplink"] += sent
            result[receiver]["downlink"] += sent
    return result
