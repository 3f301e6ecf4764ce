"""Runs peer_rank.py's schedules and boundaries on the CPU: losses with fp32 boundaries are those of a plain
loop, with bf16 and int8 they stay near, and int8 boundaries send a quarter of fp32's bytes.

usage: peer_schedules_test.py [SCHEDULE...]     without names: all
"""
import copy
import json
import pathlib
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import peer_rank  # noqa: E402 (ends the program where there is no torch)

import torch  # noqa: E402
from peer_boundary import Boundary, decode_int8, encode_int8  # noqa: E402

RANK = pathlib.Path(__file__).resolve().parent / "peer_rank.py"
JOB = {"model": {"family": "gpt", "layers": 4, "hidden": 32, "heads": 2, "context": 16, "vocabulary": 256},
       "split": [2, 2], "microbatches": 4, "microbatch_size": 1, "dtype": "fp32", "steps": 4, "seed": 1,
       "optimizer": {"lr": 1e-2, "betas": [0.9, 0.95], "epsilon": 1e-8, "weight_decay": 0.1},
       "threads": 1, "text": str(RANK), "devices": ["cpu", "cpu"], "deadline_s": 120}
# How far a step's loss may be from the plain loop's, relatively. The losses fall by more than a tenth.
FARTHEST = {"fp32": 1e-5, "bf16": 1e-2, "int8": 1e-2}


def plain_losses(job):
    """Without stages: one module, one sum of gradients."""
    job = {**job, "split": [4], "schedule": "gpipe", "boundary": "fp32"}
    module = peer_rank.StageModule(job, (0, 0, 4), torch.device("cpu"))
    optimizer = peer_rank.make_optimizer([module], job["optimizer"])
    data, losses = peer_rank.batches(job, torch.device("cpu")), []
    for _ in range(job["steps"]):
        parts = [peer_rank.loss_of(module(ids), targets)
                 for ids, targets in zip(*(tensor.split(1) for tensor in next(data)))]
        loss = torch.stack(parts).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def pipelined_losses(schedule, boundary, folder):
    job = {**copy.deepcopy(JOB), "schedule": schedule, "boundary": boundary,
           "rendezvous": f"tcp://127.0.0.1:{free_port()}"}
    path = folder / "job.json"
    path.write_text(json.dumps(job))
    ranks = [subprocess.Popen([sys.executable, RANK, path, str(rank)], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) for rank in range(2)]
    outputs = [rank.communicate(timeout=110) for rank in ranks]
    for rank, (_, errors) in zip(ranks, outputs):
        assert rank.returncode == 0, f"{schedule}, {boundary}: a rank ended with {rank.returncode}:\n{errors}"
    found = [json.loads(out.splitlines()[-1])["losses"] for out, _ in outputs]
    assert sum(bool(losses) for losses in found) == 1, f"expected losses of one rank, got {found}"
    return next(losses for losses in found if losses)


def codes_are_near():
    values = torch.randn(2, 3, 32, generator=torch.Generator().manual_seed(3))
    values[0, 0] = 0
    packed = encode_int8(values)
    assert packed.shape == (2, 3, 18) and packed.dtype == torch.bfloat16
    assert packed.numel() * 2 * 3 < values.numel() * 4, "36 bytes a token, where fp32 has 128"
    step = values.abs().amax(dim=-1, keepdim=True) / 127
    assert ((decode_int8(packed) - values).abs() <= step * 0.5001).all()
    try:
        Boundary("int8", 33)
    except ValueError as error:
        assert "even" in str(error)
    else:
        raise AssertionError("expected 33 channels to be refused")


def main():
    codes_are_near()
    expected = plain_losses(JOB)
    assert expected[0] - expected[-1] > 0.1 * expected[0], f"the plain loop must learn, got {expected}"
    with tempfile.TemporaryDirectory() as folder:
        for schedule in sys.argv[1:] or peer_rank.SCHEDULES:
            boundaries = ("fp32", "bf16", "int8") if schedule == "1f1b" else ("fp32",)
            for boundary in boundaries:
                losses = pipelined_losses(schedule, boundary, pathlib.Path(folder))
                for step, (got, wanted) in enumerate(zip(losses, expected, strict=True), 1):
                    assert abs(got - wanted) <= FARTHEST[boundary] * wanted, \
                        f"{schedule}, {boundary}, step {step}: expected {wanted}, got {got}"
                if boundary != "fp32":
                    assert losses != expected, f"{boundary} changed no loss: was it used?"
                print(f"{schedule}, {boundary}: {losses}")


if __name__ == "__main__":
    main()
