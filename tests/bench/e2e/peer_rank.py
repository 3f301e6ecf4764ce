"""One rank of torch.distributed.pipelining, as peers.py starts it in a worker's network namespace.

usage: peer_rank.py JOB.json RANK     trains one stage; prints {"seconds": [...], "losses": [...]}
       peer_rank.py versions          prints what is installed

Ends with 77 where torch cannot be imported.
"""
import datetime
import glob
import json
import math
import pathlib
import platform
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from torch_models import make_model  # noqa: E402 (ends the program where there is no torch)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

SCHEDULES = {"gpipe": "ScheduleGPipe", "1f1b": "Schedule1F1B"}
# As the workers' stages begin: worker/stage/model/model.h.
DEVIATION = 0.02
RESIDUAL = ("attn.proj", "mlp.proj", "o_proj", "down_proj")


class StageModule(nn.Module):
    """Some layers of the model on `device`. What leaves it is fp32, also under autocast."""

    def __init__(self, job, rank, device):
        super().__init__()
        self.first, self.last = rank == 0, rank + 1 == len(job["split"])
        self.device_type, self.bf16 = device.type, job["dtype"] == "bf16"
        # Memory is taken for this stage's layers alone.
        with torch.device("meta"):
            self.model = make_model(job["model"], job["model"]["vocabulary"])
            self.model.keep(sum(job["split"][:rank]), job["split"][rank], stem=self.first,
                            head=self.last)
        self.model.to_empty(device=device)
        self._draw(job["model"]["layers"])

    @torch.no_grad()
    def _draw(self, layers):
        for name, value in self.model.named_parameters():
            if value.dim() >= 2:
                residual = name.removesuffix(".weight").endswith(RESIDUAL)
                value.normal_(std=DEVIATION / math.sqrt(2 * layers) if residual else DEVIATION)
            elif name.endswith(".bias"):
                value.zero_()
            else:
                value.fill_(1)

    def forward(self, x):
        with torch.autocast(self.device_type, torch.bfloat16, enabled=self.bf16):
            if self.first:
                x = self.model.stem(x)
            for block in self.model.blocks():
                x = block(x)
            return self.model.logits(x) if self.last else x.float()


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


def make_optimizer(module, settings):
    """Weight decay on matrices only."""
    parameters = list(module.parameters())
    groups = [{"params": [p for p in parameters if p.dim() >= 2],
               "weight_decay": settings["weight_decay"]},
              {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}]
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=settings["lr"],
                             betas=settings["betas"], eps=settings["epsilon"], fused=True)


def make_schedule(module, job, rank, device):
    """Shapes are said, because finding them out at run time also needs NumPy."""
    from torch.distributed import pipelining  # takes seconds, which versions() can do without

    model, sequences = job["model"], (job["microbatch_size"], job["model"]["context"])
    ids = torch.empty(sequences, dtype=torch.long, device="meta")
    boundary = torch.empty((*sequences, model["hidden"]), device="meta")
    logits = torch.empty((*sequences, model["vocabulary"]), device="meta",
                         dtype=torch.bfloat16 if module.bf16 else torch.float32)
    stage = pipelining.PipelineStage(module, rank, len(job["split"]), device,
                                     input_args=ids if module.first else boundary,
                                     output_args=logits if module.last else boundary)
    return getattr(pipelining, SCHEDULES[job["schedule"]])(stage, job["microbatches"],
                                                           loss_fn=loss_of)


def train(job, rank):
    torch.set_num_threads(job["threads"])
    torch.manual_seed(job["seed"] + rank)
    device = torch.device(job["devices"][rank])
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", init_method=job["rendezvous"], rank=rank,
                            world_size=len(job["split"]), device_id=device if cuda else None,
                            timeout=datetime.timedelta(seconds=job["deadline_s"]))
    module = StageModule(job, rank, device)
    optimizer = make_optimizer(module, job["optimizer"])
    schedule = make_schedule(module, job, rank, device)
    seconds, losses, data = [], [], batches(job, device)
    end = time.perf_counter()
    for _ in range(job["steps"]):
        ids, targets = next(data)
        of_microbatches = [] if module.last else None
        # Around the forwards' autocast, so that its cache has the weights' casts for the whole step.
        with torch.autocast(device.type, enabled=False):
            schedule.step(*([ids] if module.first else []), target=targets if module.last else None,
                          losses=of_microbatches, return_outputs=False)
        optimizer.step()
        optimizer.zero_grad()
        if module.last:
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
