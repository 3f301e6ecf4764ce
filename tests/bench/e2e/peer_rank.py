"""One rank of torch.distributed.pipelining, as peers.py starts it in a worker's network namespace.

usage: peer_rank.py JOB.json RANK     trains its stages; prints {"seconds": [...], "losses": [...]}
       peer_rank.py versions          prints what is installed

Ends with 77 where torch cannot be imported.
"""
import datetime
import glob
import json
import math
import pathlib
import platform
import re
import sys
import time
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from torch_models import make_model  # noqa: E402 (ends the program where there is no torch)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

from peer_boundary import Boundary  # noqa: E402

# Class and stages of a rank. ScheduleZBVZeroBubble is not here: in torch 2.11 its ranks send to themselves,
# which Gloo refuses.
SCHEDULES = {"gpipe": ("ScheduleGPipe", 1), "1f1b": ("Schedule1F1B", 1),
             "interleaved": ("ScheduleInterleaved1F1B", 2),
             "zero-bubble": ("ScheduleInterleavedZeroBubble", 2)}
# As the workers' stages begin: worker/stage/model/model.h.
DEVIATION = 0.02
RESIDUAL = ("attn.proj", "mlp.proj", "o_proj", "down_proj")


def stages_of(job, rank):
    """[(index of the stage, its first layer, its layers)] of a rank. A rank's layers of the split are divided
    among its stages as evenly as can be, larger parts first."""
    _, each = SCHEDULES[job["schedule"]]
    counts = [(owner, (layers + each - 1 - turn) // each)
              for turn in range(each) for owner, layers in enumerate(job["split"])]
    if min(layers for _, layers in counts) < 1:
        raise ValueError(f"{job['schedule']}: expected at least {each} layers a rank, got the split "
                         f"{job['split']}")
    begins = [sum(layers for _, layers in counts[:stage]) for stage in range(len(counts))]
    return [(stage, begins[stage], layers) for stage, (owner, layers) in enumerate(counts)
            if owner == rank]


class StageModule(nn.Module):
    """Some layers of the model on `device`. Tensors leave and arrive as `boundary` says."""

    def __init__(self, job, stage, device):
        super().__init__()
        index, begin, layers = stage
        self.first, self.last = begin == 0, begin + layers == sum(job["split"])
        self.index, self.device_type, self.bf16 = index, device.type, job["dtype"] == "bf16"
        self.boundary = Boundary(job["boundary"], job["model"]["hidden"])
        # Memory is taken for this stage's layers alone.
        with torch.device("meta"):
            self.model = make_model(job["model"], job["model"]["vocabulary"])
            self.model.keep(begin, layers, stem=self.first, head=self.last)
        self.model.to_empty(device=device)
        self._draw(job["seed"], job["model"]["layers"], begin)

    @torch.no_grad()
    def _draw(self, seed, layers, begin):
        """The same numbers for a parameter, whichever stage has it."""
        for name, value in self.model.named_parameters():
            whole = re.sub(r"\d+", lambda layer: str(int(layer.group()) + begin), name, count=1)
            random = torch.Generator(value.device).manual_seed(zlib.crc32(f"{seed} {whole}".encode()))
            if value.dim() >= 2:
                residual = name.removesuffix(".weight").endswith(RESIDUAL)
                value.normal_(std=DEVIATION / math.sqrt(2 * layers) if residual else DEVIATION,
                              generator=random)
            elif name.endswith(".bias"):
                value.zero_()
            else:
                value.fill_(1)

    def forward(self, x):
        with torch.autocast(self.device_type, torch.bfloat16, enabled=self.bf16):
            x = self.model.stem(x) if self.first else self.boundary.incoming(x)
            for block in self.model.blocks():
                x = block(x)
            return self.model.logits(x) if self.last else self.boundary.outgoing(x)


def loss_of(logits, targets):
    return nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def batches(job, device):
    """For ever: tokens and the tokens that follow them, the same in every rank."""
    paths = sorted(glob.glob(job["text"]))
    text = torch.frombuffer(bytearray(b"".join(pathlib.Path(path).read_bytes() for path in paths)),
                            dtype=torch.uint8)
    context, rows = job["model"]["context"], job["microbatches"] * job["microbatch_size"]
    random = torch.Generator().manual_seed(job["seed"])
    while True:
        starts = torch.randint(len(text) - context, (rows, 1), generator=random)
        windows = text[starts + torch.arange(context + 1)].long().to(device)
        yield windows[:, :-1].contiguous(), windows[:, 1:].contiguous()


def make_optimizer(modules, settings):
    """Weight decay on matrices only."""
    parameters = [p for module in modules for p in module.parameters()]
    groups = [{"params": [p for p in parameters if p.dim() >= 2],
               "weight_decay": settings["weight_decay"]},
              {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}]
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=settings["lr"],
                             betas=settings["betas"], eps=settings["epsilon"], fused=True)


def make_schedule(modules, job, device):
    """Shapes are said, because finding them out at run time also needs NumPy."""
    from torch.distributed import pipelining  # takes seconds, which versions() can do without

    model, sequences = job["model"], (job["microbatch_size"], job["model"]["context"])
    name, each = SCHEDULES[job["schedule"]]
    ids = torch.empty(sequences, dtype=torch.long, device="meta")
    stages = []
    for module in modules:
        boundary = torch.empty((*sequences, module.boundary.width), device="meta",
                               dtype=module.boundary.dtype)
        logits = torch.empty((*sequences, model["vocabulary"]), device="meta",
                             dtype=torch.bfloat16 if module.bf16 else torch.float32)
        stages.append(pipelining.PipelineStage(
            module, module.index, each * len(job["split"]), device,
            input_args=ids if module.first else boundary,
            output_args=logits if module.last else boundary))
    return getattr(pipelining, name)(stages if each > 1 else stages[0], job["microbatches"],
                                     loss_fn=loss_of)


def train(job, rank):
    torch.set_num_threads(job["threads"])
    device = torch.device(job["devices"][rank])
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", init_method=job["rendezvous"], rank=rank,
                            world_size=len(job["split"]), device_id=device if cuda else None,
                            timeout=datetime.timedelta(seconds=job["deadline_s"]))
    modules = [StageModule(job, stage, device) for stage in stages_of(job, rank)]
    first, last = modules[0].first, any(module.last for module in modules)
    optimizer = make_optimizer(modules, job["optimizer"])
    schedule = make_schedule(modules, job, device)
    seconds, losses, data = [], [], batches(job, device)
    end = time.perf_counter()
    for _ in range(job["steps"]):
        ids, targets = next(data)
        of_microbatches = [] if last else None
        # Around the forwards' autocast, so that its cache has the weights' casts for the whole step.
        with torch.autocast(device.type, enabled=False):
            schedule.step(*([ids] if first else []), target=targets if last else None,
                          losses=of_microbatches, return_outputs=False)
        optimizer.step()
        optimizer.zero_grad()
        if last:
            losses.append(torch.stack(of_microbatches).mean().item())
        if cuda:
            torch.cuda.synchronize()
        begin, end = end, time.perf_counter()
        seconds.append(end - begin)
    dist.barrier()
    dist.destroy_process_group()
    return {"seconds": seconds, "losses": losses}


def versions():
    found = {"torch": torch.__version__, "python": platform.python_version(),
             "cuda": torch.version.cuda, "gpus": []}
    if torch.cuda.is_available():
        found["gpus"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    return found


def main():
    if sys.argv[1] == "versions":
        result = versions()
    else:
        result = train(json.loads(pathlib.Path(sys.argv[1]).read_text()), int(sys.argv[2]))
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
