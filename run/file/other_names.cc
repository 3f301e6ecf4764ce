#include "run/file/other_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace longhaul::config {
namespace {

struct Name {
  std::string_view theirs;  // in small letters, with underscores
  std::string_view ours;    // a key's path, or a sentence
  // Our value for a value of theirs; both "": the value stays as it is.
  std::string_view their_value = {}, our_value = {};
};

constexpr auto kNames = std::to_array<Name>({
    {"learning_rate", "train.optimizer.lr"},
    {"lr", "train.optimizer.lr"},
    {"num_epochs", "train.epochs"},
    {"num_train_epochs", "train.epochs"},
    {"epochs", "train.epochs"},
    {"n_epochs", "train.epochs"},
    {"max_epochs", "train.epochs"},
    {"max_steps", "train.steps"},
    {"num_steps", "train.steps"},
    {"max_iters", "train.steps"},
    {"train_iters", "train.steps"},
    {"total_steps", "train.steps"},
    {"per_device_train_batch_size", "train.microbatch_size"},
    {"micro_batch_size", "train.microbatch_size"},
    {"train_micro_batch_size_per_gpu", "train.microbatch_size"},
    {"batch_size", "train.microbatch_size"},
    {"gradient_accumulation_steps", "train.microbatches"},
    {"grad_accum_steps", "train.microbatches"},
    {"global_batch_size",
     "train.microbatches x train.microbatch_size x pipeline.replicas, in sequences"},
    {"train_batch_size",
     "train.microbatches x train.microbatch_size x pipeline.replicas, in sequences"},
    {"weight_decay", "train.optimizer.weight_decay"},
    {"adam_beta1", "train.optimizer.betas, a list of two"},
    {"adam_beta2", "train.optimizer.betas, a list of two"},
    {"adam_epsilon", "train.optimizer.epsilon"},
    {"max_grad_norm", "train.optimizer.clip_norm"},
    {"gradient_clipping", "train.optimizer.clip_norm"},
    {"grad_clip", "train.optimizer.clip_norm"},
    {"gradient_clip_val", "train.optimizer.clip_norm"},
    {"optim", "train.optimizer.kind: adamw or muon"},
    {"warmup_steps", "train.schedule.warmup"},
    {"num_warmup_steps", "train.schedule.warmup"},
    {"warmup_iters", "train.schedule.warmup"},
    {"warmup_ratio", "train.schedule.warmup, in steps: this share of train.steps"},
    {"lr_scheduler_type", "train.schedule.kind", "constant_with_warmup", "constant"},
    {"lr_scheduler", "train.schedule.kind", "constant_with_warmup", "constant"},
    {"min_lr_ratio", "train.schedule.final_ratio"},
    {"bf16", "train.dtype", "true", "bf16"},
    {"fp16", "train.dtype: bf16 (longhaul does not compute in fp16)"},
    {"mixed_precision", "train.dtype"},
    {"torch_dtype", "train.dtype", "bfloat16", "bf16"},
    {"manual_seed", "train.seed"},
    {"max_seq_length", "model.context"},
    {"max_seq_len", "model.context"},
    {"sequence_len", "model.context"},
    {"seq_length", "model.context"},
    {"cutoff_len", "model.context"},
    {"block_size", "model.context"},
    {"model_max_length", "model.context"},
    {"max_position_embeddings", "model.context"},
    {"n_positions", "model.context"},
    {"num_hidden_layers", "model.layers"},
    {"n_layer", "model.layers"},
    {"n_layers", "model.layers"},
    {"hidden_size", "model.hidden"},
    {"n_embd", "model.hidden"},
    {"d_model", "model.hidden"},
    {"num_attention_heads", "model.heads"},
    {"n_head", "model.heads"},
    {"num_key_value_heads", "model.kv_heads"},
    {"intermediate_size", "model.intermediate"},
    {"vocab_size", "model.vocabulary"},
    {"tie_word_embeddings", "model.tied"},
    {"rms_norm_eps", "model.norm_epsilon"},
    {"base_model", "model.from, a folder"},
    {"model_name_or_path", "model.from, a folder"},
    {"pretrained_model_name_or_path", "model.from, a folder"},
    {"dataset", "data.sets, folders that `longhaul data prepare` makes, or data.text"},
    {"datasets", "data.sets, folders that `longhaul data prepare` makes, or data.text"},
    {"dataset_name", "data.sets, folders that `longhaul data prepare` makes, or data.text"},
    {"train_file", "data.sets, folders that `longhaul data prepare` makes, or data.text"},
    {"val_set_size", "validation.share"},
    {"eval_steps", "validation.every"},
    {"eval_interval", "validation.every"},
    {"save_steps", "checkpoint.every"},
    {"save_interval", "checkpoint.every"},
    {"save_total_limit", "checkpoint.keep"},
    {"resume_from_checkpoint",
     "no key: `longhaul submit --resume` goes on from the newest checkpoint"},
    {"output_dir",
     "no key: checkpoints are on the workers' disks, and `longhaul export --out` writes a model"},
    {"logging_steps", "no key: every step is recorded, `longhaul steps` prints them"},
    {"gradient_checkpointing", "pipeline.recompute", "true", "blocks"},
    {"activation_checkpointing", "pipeline.recompute", "true", "blocks"},
    {"beta", "train.dpo.beta"},
    {"dpo_beta", "train.dpo.beta"},
    {"pref_beta", "train.dpo.beta"},
    {"label_smoothing", "train.dpo.label_smoothing"},
    {"lora_r", "train.lora.rank"},
    {"lora_rank", "train.lora.rank"},
    {"r", "train.lora.rank"},
    {"lora_alpha", "train.lora.alpha"},
    {"lora_target_modules", "train.lora.targets"},
    {"target_modules", "train.lora.targets"},
    {"use_rslora", "train.lora.rslora"},
    {"lora_dropout", "train.lora.dropout"},
    {"load_in_4bit", "train.lora.quantize_base", "true", "nf4"},
    {"load_in_8bit", "train.lora.quantize_base", "true", "int8"},
    {"bnb_4bit_quant_type", "train.lora.quantize_base"},
    {"tensor_parallel_size", "group.tensor"},
    {"tensor_model_parallel_size", "group.tensor"},
    {"expert_model_parallel_size", "group.expert"},
    {"pipeline_parallel_size", "pipeline.stages"},
    {"pipeline_model_parallel_size", "pipeline.stages"},
    {"data_parallel_size", "pipeline.replicas"},
});

}  // namespace

std::string OtherName(std::string_view key, std::string_view value) {
  std::string theirs(key);
  for (char& c : theirs) {
    c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  const auto name = std::ranges::find(kNames, theirs, &Name::theirs);
  if (name == kNames.end()) return "";
  const bool is_key = name->ours.find_first_of(" :") == std::string_view::npos;
  if (!is_key || value.empty()) return std::string(name->ours);
  if (name->their_value.empty()) return fmt::format("{}: {}", name->ours, value);
  if (value == name->their_value) return fmt::format("{}: {}", name->ours, name->our_value);
  return std::string(name->ours);
}

}  // namespace longhaul::config
