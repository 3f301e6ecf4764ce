"""Holds what longhaul reads of config.json, and writes, against transformers.

usage: transformers_test.py PUBLISHED_REWRITE MODELS

Of every folder of MODELS, rewritten by longhaul, transformers computes the logits that it computed of
the original. Of every config below, transformers makes the same model from the original and from
what longhaul wrote after reading it: each key that longhaul misreads shows in the logits.

Needs a Python that has torch and transformers; without them exits with 77, which ctest shows as skipped.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import torch
    import transformers
    from safetensors.torch import load_file
    from transformers import AutoConfig, AutoModelForCausalLM
except (ImportError, OSError) as error:
    print(f"skipped: {sys.executable} cannot import transformers ({error}); another Python is named by "
          "cmake -DLONGHAUL_TRANSFORMERS_PYTHON=PATH")
    sys.exit(77)

TOLERANCE = {"fp32": 1e-5, "bf16": 0.3, "fp16": 0.03}  # logits reach 5; rounded weights move them
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
TOKENS = 64

SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 96}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
LLAMA3 = {"factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
EXPERTS = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 20}
CONFIGS = {
    "gpt2, most keys absent": {"model_type": "gpt2", "n_layer": 2, "n_embd": 24, "n_head": 3},
    "gpt2, its own head": {"model_type": "gpt2", "n_layer": 2, "n_embd": 24, "n_head": 3, "vocab_size": 96,
                           "layer_norm_epsilon": 0.1, "tie_word_embeddings": False},
    "llama, keys absent": {"model_type": "llama", **SMALL, "num_attention_heads": 4},
    "llama, tied, an epsilon": {"model_type": "llama", **SMALL, **HEADS, "tie_word_embeddings": True,
                                "rms_norm_eps": 0.01},
    "llama, heads of their own size": {"model_type": "llama", **SMALL, **HEADS, "head_dim": 12},
    "llama, rope of older files": {"model_type": "llama", **SMALL, **HEADS, "rope_theta": 100.0,
                                   "rope_scaling": {"type": "linear", "factor": 3.0}},
    "llama, both ropes": {"model_type": "llama", **SMALL, **HEADS,
                          "rope_scaling": {"rope_type": "linear", "factor": 3.0, "rope_theta": 100.0},
                          "rope_parameters": {"rope_type": "default", "rope_theta": 7.0}},
    "llama, two bases": {"model_type": "llama", **SMALL, **HEADS, "rope_theta": 7.0,
                         "rope_parameters": {"rope_type": "default", "rope_theta": 100.0}},
    "llama3, of older files": {"model_type": "llama", **SMALL, **HEADS, "rope_theta": 100.0,
                               "rope_scaling": {"type": "llama3", **LLAMA3,
                                                "original_max_position_embeddings": 32}},
    "llama3, original context absent": {"model_type": "llama", **SMALL, **HEADS,
                                        "max_position_embeddings": 64,
                                        "rope_parameters": {"rope_type": "llama3", "rope_theta": 100.0,
                                                            **LLAMA3}},
    "mistral, keys absent": {"model_type": "mistral", **SMALL, "num_attention_heads": 8},
    "mistral, null": {"model_type": "mistral", **SMALL, "num_attention_heads": 4,
                      "num_key_value_heads": 2, "head_dim": None, "sliding_window": None},
    "mistral, heads that do not divide hidden": {"model_type": "mistral", **SMALL, "num_attention_heads": 3,
                                                 "num_key_value_heads": 3, "head_dim": 10},
    "qwen2, keys absent": {"model_type": "qwen2", **SMALL, **HEADS},
    "qwen2, null": {"model_type": "qwen2", **SMALL, "num_attention_heads": 4, "num_key_value_heads": None},
    "qwen2, heads of their own size": {"model_type": "qwen2", **SMALL, **HEADS, "head_dim": 12},
    "qwen3, keys absent": {"model_type": "qwen3", **SMALL, **HEADS},
    "qwen3, null": {"model_type": "qwen3", **SMALL, "num_attention_heads": 4, "head_dim": 8,
                    "num_key_value_heads": None},
    "qwen3, rope": {"model_type": "qwen3", **SMALL, **HEADS, "head_dim": 10, "rope_theta": 1e6,
                    "rope_scaling": {"rope_type": "linear", "factor": 2.0}, "use_sliding_window": True,
                    "max_window_layers": 2},
    "mixtral, keys absent": {"model_type": "mixtral", **SMALL, "num_attention_heads": 8,
                             "num_local_experts": 3, "num_experts_per_tok": 2},
    "mixtral, one expert a token": {"model_type": "mixtral", **SMALL, **HEADS, "head_dim": 12,
                                    "rms_norm_eps": 0.01, "num_local_experts": 5,
                                    "num_experts_per_tok": 1},
    "qwen2_moe, most keys absent": {"model_type": "qwen2_moe", **SMALL, "num_attention_heads": 16,
                                    **EXPERTS, "shared_expert_intermediate_size": 24},
    "qwen2_moe, without biases": {"model_type": "qwen2_moe", **SMALL, **HEADS, **EXPERTS, "qkv_bias": False,
                                  "norm_topk_prob": True, "shared_expert_intermediate_size": 24},
    "qwen3_moe, most keys absent": {"model_type": "qwen3_moe", **SMALL, **HEADS, **EXPERTS},
    "qwen3_moe, of older files": {"model_type": "qwen3_moe", **SMALL, **HEADS, "head_dim": 10,
                                  "rope_theta": 1e6, "norm_topk_prob": True, "num_experts": 6,
                                  "num_experts_per_tok": 3, "moe_intermediate_size": 20,
                                  "decoder_sparse_step": 1, "mlp_only_layers": [],
                                  "sliding_window": None, "tie_word_embeddings": True},
    "mistral, a window, layers of two types": {"model_type": "mistral", **SMALL, **HEADS, "sliding_window": 9, "head_dim": 8,
                                               "layer_types": ["full_attention", "sliding_attention"]},
    "qwen2, windows from a layer on": {"model_type": "qwen2", **SMALL, **HEADS, "sliding_window": 9,
                                       "use_sliding_window": True, "max_window_layers": 1},
    "qwen3_moe, a window": {"model_type": "qwen3_moe", **SMALL, **HEADS, **EXPERTS, "sliding_window": 9,
                            "use_sliding_window": True},
    "smollm3, windows": {"model_type": "smollm3", **SMALL, **HEADS, "sliding_window": 9, "pad_token_id": 0,
                         "use_sliding_window": True, "no_rope_layers": [1, 0],
                         "layer_types": ["full_attention", "sliding_attention"]},
    "olmo2, most keys absent": {"model_type": "olmo2", **SMALL, "num_attention_heads": 4, "pad_token_id": 0},
    "phi3, most keys absent": {"model_type": "phi3", **SMALL, "num_attention_heads": 4, "pad_token_id": 0},
    "phi3, a window": {"model_type": "phi3", **SMALL, **HEADS, "pad_token_id": 0, "sliding_window": 9},
    "phi3, longrope of older files": {"model_type": "phi3", **SMALL, **HEADS, "pad_token_id": 0,
                                      "max_position_embeddings": 256, "original_max_position_embeddings": 32,
                                      "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 4,
                                                       "long_factor": [1.5, 2.0, 3.0, 5.0]}},
    "phi3, a context that needs no long factors": {
        "model_type": "phi3", **SMALL, **HEADS, "pad_token_id": 0, "max_position_embeddings": 512,
        "original_max_position_embeddings": 128, "partial_rotary_factor": 0.75,
        "rope_scaling": {"type": "longrope", "short_factor": [1.0, 1.1, 1.2], "long_factor": [1.5, 2.0, 3.0]}},
    "gemma2, most keys absent": {"model_type": "gemma2", **SMALL, **HEADS, "head_dim": 8},
    "gemma2, no caps": {"model_type": "gemma2", **SMALL, **HEADS, "attn_logit_softcapping": None, "head_dim": 8,
                        "final_logit_softcapping": None, "sliding_window": 9, "query_pre_attn_scalar": 24},
    "gemma3, of older files": {"model_type": "gemma3_text", **SMALL, **HEADS, "sliding_window": 9,
                               "sliding_window_pattern": 2, "rope_local_base_freq": 100.0, "rope_theta": 1e4,
                               "head_dim": 8, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
    "gemma3, most keys absent": {"model_type": "gemma3_text", **SMALL, **HEADS, "head_dim": 8},
    "llama, yarn": {"model_type": "llama", **SMALL, **HEADS, "rope_theta": 100.0,
                    "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}},
    "llama, yarn by mscale": {"model_type": "llama", **SMALL, **HEADS, "rope_theta": 100.0,
                              "max_position_embeddings": 64,
                              "rope_scaling": {"rope_type": "yarn", "factor": 2.5, "beta_fast": 4, "beta_slow": 0.5,
                                               "mscale": 1.0, "mscale_all_dim": 0.5, "truncate": False}},
    "llama, dynamic": {"model_type": "llama", **SMALL, **HEADS, "max_position_embeddings": 32,
                       "rope_scaling": {"type": "dynamic", "factor": 2.0}},
}


def logits_of(model, ids):
    with torch.no_grad():
        return model.eval()(input_ids=ids, use_cache=False).logits.float()


def compare(what, got, wanted, tolerance):
    apart = (got - wanted).abs().max().item()
    if got.shape != wanted.shape or not apart <= tolerance:
        raise AssertionError(f"{what}: logits differ by {apart:.2e}, {tolerance:g} are allowed")
    return apart


def check_folder(rewrite, folder, expected, dtype, out):
    subprocess.run([rewrite, "folder", folder, out, dtype], check=True, timeout=60)
    model, info = AutoModelForCausalLM.from_pretrained(
        out, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    wrong = {key: value for key, value in info.items() if value}
    if wrong:
        raise AssertionError(f"{folder.name}: {wrong}")
    if AutoConfig.from_pretrained(out).dtype not in (DTYPES[dtype], str(DTYPES[dtype]).split(".")[1]):
        raise AssertionError(f"{folder.name}: {AutoConfig.from_pretrained(out).dtype}")
    got, wanted = logits_of(model, expected["input_ids"].long()), expected["logits"]
    if hasattr(model.config, "num_experts_per_tok") and dtype != "fp32":
        # Rounding sends a few tokens to other experts, and moves the logits of those behind them.
        few = (got - wanted).abs().amax(-1).flatten().argsort(descending=True)[:got.shape[0] * got.shape[1] // 4]
        got.flatten(0, 1)[few] = wanted.flatten(0, 1)[few]
    apart = compare(folder.name, got, wanted, TOLERANCE[dtype])
    print(f"ok: {folder.name} as {dtype}: logits differ by {apart:.1e}", flush=True)


def model_of(path, weights=None):
    torch.manual_seed(1)
    config = AutoConfig.from_pretrained(path)
    config._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config)
    if weights is not None:
        model.load_state_dict(weights)  # strict: names and shapes
        return model
    for name, parameter in model.named_parameters():  # far from what models begin with
        torch.nn.init.normal_(parameter, 1.0 if "norm" in name or "ln_" in name else 0.0, 0.2)
    return model


def check_config(rewrite, name, config, folder):
    original, again = folder / "original", folder / "again"
    for path in (original, again):
        path.mkdir(parents=True)
    (original / "config.json").write_text(json.dumps(config), encoding="utf-8")
    subprocess.run([rewrite, "config", original / "config.json", again / "config.json"], check=True,
                   timeout=60)
    model = model_of(original)
    ids = torch.randint(96, (2, TOKENS), generator=torch.Generator().manual_seed(2))
    apart = compare(name, logits_of(model_of(again, model.state_dict()), ids), logits_of(model, ids), 1e-5)
    print(f"ok: {name}: logits differ by {apart:.1e}", flush=True)


def main():
    rewrite, models = sys.argv[1], pathlib.Path(sys.argv[2])
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory(prefix="longhaul-transformers-") as temporary:
        out = pathlib.Path(temporary)
        for folder in sorted(path for path in models.iterdir() if path.is_dir()):
            results = folder / "expected.safetensors"
            if not results.exists():
                results = models / folder.name.removesuffix("_sharded") / "expected.safetensors"
            for dtype in DTYPES:
                check_folder(rewrite, folder, load_file(results), dtype, out / f"{folder.name}-{dtype}")
        for number, (name, config) in enumerate(CONFIGS.items()):
            check_config(rewrite, name, config, out / str(number))


if __name__ == "__main__":
    main()
