"""A published model through all of it: imported, trained over slow links, exported, loaded by transformers.

usage: fine_tune.py BIN_DIR [--shape qwen2.5-0.5b|tiny] [--steps 20] [--context 512] [--stages 4]
                    [--rate 100mbit] [--device cpu] [--dtype fp32] [--links default|none] [--lora RANK]
                    [--csv FILE]

Makes random weights in the shape's exact layout (tied, bf16), a tokenizer and a data set of English-like
text; trains with `tied: split`, or with --lora adapters of all linear modules, on daemons in network
namespaces; exports in fp32, adapters merged; loads the export with
transformers and computes its loss over the windows that the run validated on. Prints that loss and the
run's validation losses; exit 1 where the clean one differs from it by more than 1e-3. Needs root, and a Python
with torch, transformers and tokenizers.
"""
import argparse
import contextlib
import csv
import json
import os
import pathlib
import random
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "faults"))
from namespace_cluster import namespace_cluster  # noqa: E402
from requirements import without_root

MOST_DIFFERENCE = 1e-3
SHAPES = {
    "qwen2.5-0.5b": {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
                     "num_key_value_heads": 2, "vocab_size": 151936, "max_position_embeddings": 32768},
    "tiny": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
             "num_key_value_heads": 2, "vocab_size": 2048, "max_position_embeddings": 32768},
}
LINKS = {"default": '{ forward: tah, backward: "fixed:bits=4,rounding=stochastic" }',
         "none": "{ forward: none, backward: none }"}
RUN = """\
name: fine-tune
model: {{ from: model, tied: {tied}, context: {context} }}
data: {{ sets: [data], upload: false }}
validation: {{ every: {steps}, samples: 32 }}
train:
  steps: {steps}
  microbatches: 8
  dtype: {dtype}
{lora}  optimizer: {{ lr: 1e-4 }}
  schedule: {{ kind: cosine, warmup: 2 }}
pipeline: {{ stages: {stages}, placement: names }}
links: {links}
checkpoint: {{ every: 0 }}
"""


def make_text(path, words=400_000):
    """Words by Zipf's law, in sentences and documents."""
    chance = random.Random(1)
    vocabulary = ["".join(chance.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(chance.randrange(2, 10)))
                  for _ in range(5000)]
    weights = [1 / (i + 1) for i in range(len(vocabulary))]
    with open(path, "w", encoding="utf-8") as out:
        written = 0
        while written < words:
            count = chance.randrange(20, 400)
            out.write(json.dumps({"text": " ".join(chance.choices(vocabulary, weights, k=count)) + "."}) + "\n")
            written += count


def make_model(folder, shape, text):
    """config.json, random weights and a tokenizer of the text, as save_pretrained writes them."""
    import tokenizers
    import torch
    import transformers

    torch.manual_seed(1)
    config = transformers.Qwen2Config(**SHAPES[shape], tie_word_embeddings=True, rms_norm_eps=1e-6,
                                      rope_parameters={"rope_type": "default", "rope_theta": 1e6})
    model = transformers.Qwen2ForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(folder)
    trained = tokenizers.Tokenizer(tokenizers.models.BPE())
    trained.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = tokenizers.decoders.ByteLevel()
    with open(text, encoding="utf-8") as lines:
        trained.train_from_iterator(
            (json.loads(line)["text"] for line in lines),
            tokenizers.trainers.BpeTrainer(vocab_size=2000, special_tokens=["<|endoftext|>"], show_progress=False,
                                           initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    trained.save(str(folder / "tokenizer.json"))
    return sum(p.numel() for p in model.parameters())


def validation_windows(folder, context, samples, share=0.05):
    """The ids that the run validates on: whole windows cut off the end, as many as it takes, evenly spread."""
    manifest = json.loads((folder / "dataset.json").read_text())
    width = manifest["bytes_per_token"]
    raw = b"".join((folder / one["file"]).read_bytes() for one in manifest["training"])
    ids = memoryview(raw).cast("H" if width == 2 else "I")
    cut = int(len(ids) * share) // context * context
    kept = (len(ids) - cut) // context * context
    windows = (len(ids) - kept - 1) // context
    samples = min(samples, windows)
    for i in range(samples):
        first = kept + i * windows // samples * context
        yield list(ids[first:first + context + 1])


def loss_of(folder, windows, device):
    """By transformers, in fp32."""
    import torch
    import transformers

    model, report = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                                      output_loading_info=True)
    if report["missing_keys"] or report["unexpected_keys"]:
        raise AssertionError(f"transformers misses {report['missing_keys']}, and does not expect "
                             f"{report['unexpected_keys']}")
    model = model.to(device).eval()
    losses = []
    with torch.no_grad():
        for window in windows:
            ids = torch.tensor([window], device=device)
            logits = model(ids[:, :-1]).logits
            losses.append(torch.nn.functional.cross_entropy(logits[0].float(), ids[0, 1:]).item())
    return sum(losses) / len(losses)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs")
    parser.add_argument("--shape", choices=SHAPES, default="qwen2.5-0.5b")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--stages", type=int, default=4)
    parser.add_argument("--rate", default="100mbit")
    parser.add_argument("--device", default="cpu", help="of all workers, as for longhaul cluster up")
    parser.add_argument("--dtype", default="fp32")
    parser.add_argument("--links", choices=LINKS, default="default")
    parser.add_argument("--lora", type=int, default=0, metavar="RANK")
    parser.add_argument("--csv", type=pathlib.Path)
    options = parser.parse_args()
    if os.geteuid() != 0:
        return without_root("network namespaces need root")
    os.environ.setdefault("LONGHAUL_PYTHON", sys.executable)  # it has the packages
    row, began = {}, time.monotonic()

    def lap(what):
        nonlocal began
        row[f"{what}_seconds"] = round(time.monotonic() - began, 1)
        print(f"{what}: {row[f'{what}_seconds']} s", flush=True)
        began = time.monotonic()

    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="longhaul-tune-")))
        make_text(folder / "text.jsonl")
        row["parameters"] = make_model(folder / "model", options.shape, folder / "text.jsonl")
        lap("make")
        cluster = stack.enter_context(namespace_cluster(options.programs, folder, workers=options.stages,
                                                        rate=options.rate, device=options.device))
        print(cluster.longhaul("data", "prepare", "--tokenizer", "model", "--out", "data", "text.jsonl").stderr)
        lap("prepare")
        (folder / "fine-tune.yaml").write_text(RUN.format(
            context=options.context, steps=options.steps, stages=options.stages, dtype=options.dtype,
            links=LINKS[options.links], tied="true" if options.lora else "split",
            lora=f"  lora: {{ rank: {options.lora}, targets: all-linear }}\n" if options.lora else ""))
        run = cluster.cli("submit", "fine-tune.yaml").stdout.split()[0]
        lap("submit")
        status = cluster.wait_for_end(run, deadline_s=3600)
        if status["state"] != "done":
            raise AssertionError(f"{status['state']}: {status.get('reason')}")
        lap("train")
        before, *rows = cluster.steps(run)  # step 0 is a validation alone
        row.update(imported_validation_loss=before["validation_loss"],
                   first_loss=rows[0]["loss"], last_loss=rows[-1]["loss"],
                   step_seconds=sorted(r["seconds"] for r in rows)[len(rows) // 2],
                   validation_loss=rows[-1]["validation_loss"],
                   clean_validation_loss=rows[-1]["clean_validation_loss"])
        cluster.cli("export", run, "--out", "tuned", "--dtype", "fp32", *(["--merged"] if options.lora else []))
        lap("export")
        device = "cuda" if options.device.startswith("cuda") else "cpu"
        windows = list(validation_windows(folder / "data", options.context, 32))
        row["transformers_loss"] = loss_of(folder / "tuned", windows, device)
        lap("transformers")
    row["difference"] = abs(row["clean_validation_loss"] - row["transformers_loss"])
    row = {"shape": options.shape, "links": options.links, "rate": options.rate, "dtype": options.dtype,
           "context": options.context, "steps": options.steps, "stages": options.stages, "lora": options.lora, **row}
    for key, value in row.items():
        print(f"{key:24} {value}", flush=True)
    if options.csv:
        with open(options.csv, "w", encoding="utf-8", newline="") as out:
            writer = csv.DictWriter(out, row)
            writer.writeheader()
            writer.writerow(row)
    return int(row["difference"] > MOST_DIFFERENCE)


if __name__ == "__main__":
    sys.exit(main())
