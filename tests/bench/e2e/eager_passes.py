"""Seconds of a stage's steps in eager PyTorch, asked for line by line, as tests/bench/worker/stage_passes.cc
does it for longhaul's; stage_eager.py starts both.

usage: eager_passes.py            reads the job, then {"steps", "ahead": wait at a step's end only}
       eager_passes.py versions   prints what is installed, and LibTorch's folder

Ends with 77 where torch cannot be imported.
"""
import json
import pathlib
import sys
import time

import peer_rank  # noqa: I001 (ends the program where there is no torch)
import torch


class TimedStage:
    def __init__(self, job):
        run = job["run"]
        torch.set_num_threads(job["threads"])
        torch.manual_seed(1)
        self.train, self.last, model = run["train"], job["last"], run["model"]
        self.device = torch.device(job["device"])
        if self.device.type == "cuda":
            self.device = torch.device("cuda", self.device.index or 0)
            torch.cuda.set_device(self.device)
        # The rank in the middle of three has neither embedding nor head, the last of two the head.
        split = [1, job["layers"]] + ([] if self.last else [1])
        self.module = peer_rank.StageModule(
            {"model": model, "split": split, "dtype": self.train["dtype"]}, 1, self.device)
        self.optimizer = peer_rank.make_optimizer(self.module, self.train["optimizer"])
        shape = (self.train["microbatch_size"], model["context"], model["hidden"])
        values = torch.arange(shape[0] * shape[1] * shape[2]) * 37 % 101 / 50 - 1
        self.boundary = values.view(shape).to(self.device)
        targets = torch.arange(shape[0] * shape[1]) * 37 % model["vocabulary"]
        self.targets = targets.view(shape[:2]).to(self.device)

    def parameters(self):
        return sum(parameter.numel() for parameter in self.module.parameters())

    def wait(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def step_seconds(self, ahead):
        start = time.perf_counter()
        # Around the forwards' autocast, so that its cache has the weights' casts for the whole step.
        with torch.autocast(self.device.type, enabled=False):
            for _ in range(self.train["microbatches"]):
                leaf = self.boundary.clone().requires_grad_()
                output = self.module(leaf)
                if self.last:
                    output = peer_rank.loss_of(output, self.targets) / self.train["microbatches"]
                if not ahead:
                    self.wait()
                output.backward(None if self.last else self.boundary)
                if not ahead:
                    self.wait()
        self.wait()
        seconds = time.perf_counter() - start
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.wait()
        return seconds


def answer(reply):
    print(json.dumps(reply), flush=True)


def main():
    if sys.argv[1:] == ["versions"]:
        libraries = pathlib.Path(torch.__file__).parent / "lib"
        answer({**peer_rank.versions(), "libraries": str(libraries)})
        return
    stage = TimedStage(json.loads(sys.stdin.readline()))
    answer({"parameters": stage.parameters()})
    for line in sys.stdin:
        request = json.loads(line)
        answer({"seconds": [stage.step_seconds(request["ahead"]) for _ in range(request["steps"])]})


if __name__ == "__main__":
    main()
