"""Holds the stages' logits, loss and gradients against what PyTorch's own modules computed with the same weights.

usage: modules_test.py STAGE_DUMP

modules.json has that: of each tensor its norm and some values. modules_by_torch.py writes it, and compares every value
where there is torch. This needs none.
"""
import json
import math
import pathlib
import sys

from stage_dumps import TOLERANCE, blocks_before, dumps

GOLDEN = pathlib.Path(__file__).resolve().parent / "modules.json"


def golden_name(spec, stages, name):
    """Boundaries are known by the blocks before them, whatever the split."""
    kind, _, number = name.partition("/")
    if kind not in ("boundary", "boundary_gradient"):
        return name
    return f"{kind}/{blocks_before(spec, stages, int(number))}"


def compare(spec, stages, dump, golden):
    """The worst difference. Raises where a tensor is another."""
    worst = 0.0
    seen = set()
    for name, (shape, values) in dump.items():
        known = golden.get(golden_name(spec, stages, name))
        if known is None:
            if "/" in name or name in ("loss", "logits"):
                raise AssertionError(f"{name} is not in {GOLDEN.name}; modules_by_torch.py --write makes that")
            continue  # a parameter, of which the gradient is compared, or an input
        seen.add(golden_name(spec, stages, name))
        if shape != known["shape"]:
            raise AssertionError(f"{name}: {shape} from the stage, {known['shape']} from the modules")
        norm = math.sqrt(math.fsum(value * value for value in values))
        largest = known["largest"]
        errors = [abs(norm - known["norm"]) / known["norm"]]
        errors += [abs(values[index] - value) / largest for index, value in known["values"]]
        worst = max(worst, *errors)
        if not (largest > 0 and max(errors) <= TOLERANCE):
            raise AssertionError(f"{name}: differs by {max(errors):.2e} of its largest value, {largest:.3g}; "
                                 f"{TOLERANCE:g} is allowed")
    missing = {name for name in golden if not name.startswith("boundary")} - seen
    if missing:
        raise AssertionError(f"stages have no {', '.join(sorted(missing))}")
    return worst, len(seen)


def main():
    golden = json.loads(GOLDEN.read_text())
    for name, spec, stages, dump in dumps(sys.argv[1]):
        try:
            worst, count = compare(spec, stages, dump, golden[name])
        except AssertionError as error:
            raise AssertionError(f"{name}, {stages} stages: {error}") from None
        print(f"ok: {name}, {stages} stages: {count} tensors, the worst differs by {worst:.1e} of its largest value",
              flush=True)


if __name__ == "__main__":
    main()
