// What no stage can be made of.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "run/model/family.h"
#include "worker/stage/network_stage.h"

namespace longhaul::worker {

Status CheckStageOptions(const StageOptions& options) {
  const ModelSpec& model = options.model;
  const auto wrong = [](const std::string& message) { return absl::InvalidArgumentError(message); };
  if (model.hidden == 0 || model.heads == 0 || model.context == 0 || model.layers == 0 ||
      options.vocabulary == 0) {
    return wrong("a stage needs a model with hidden, heads, context, layers and vocabulary > 0");
  }
  if (options.vocabulary_rows() < options.vocabulary) {
    return wrong(fmt::format("expected a model.vocabulary of at least the tokenizer's {}; came {}",
                             options.vocabulary, options.vocabulary_rows()));
  }
  const std::vector<model::Problem> problems = model::Problems(model);
  if (!problems.empty()) return wrong(problems[0].text);
  if (options.train.microbatches == 0 || options.train.microbatch_size == 0) {
    return wrong("a stage needs microbatches and microbatch_size > 0");
  }
  if (options.first_layer > model.layers || options.layers > model.layers - options.first_layer) {
    return wrong(fmt::format("expected a part of the model's {} layers; came {} from layer {}",
                             model.layers, options.layers, options.first_layer));
  }
  if (options.first && options.first_layer != 0) {
    return wrong(fmt::format("the first stage begins with layer 0, not {}", options.first_layer));
  }
  if (options.last && options.first_layer + options.layers != model.layers) {
    return wrong(fmt::format("the last stage ends with layer {}, not {}", model.layers - 1,
                             int64_t{options.first_layer} + options.layers - 1));
  }
  if (options.slices == 0 || model.context % options.slices != 0) {
    return wrong(fmt::format("expected slices that divide the context of {} tokens; came {}",
                             model.context, options.slices));
  }
  if (options.slices > 1 && model.has_experts()) {
    return wrong(
        fmt::format("expected microbatches whole of a model with experts; came {} slices of each",
                    options.slices));
  }
  if (options.train.dpo && (!model.lora || !options.masked_targets || !options.masked_attention)) {
    return wrong(
        "expected train.lora and data.mask document with train.dpo; one of them is missing");
  }
  if (options.threads == 0) return wrong("a stage needs at least one thread");
  if (options.train.dtype == ComputeDtype::kAuto) {
    return wrong("expected train.dtype fp32 or bf16; came auto, which the plan settles");
  }
  return absl::OkStatus();
}

}  // namespace longhaul::worker
