#include "worker/stage/model.h"

#include <ATen/ops/cross_entropy_loss.h>

#include <optional>

#include "base/check.h"
#include "run/model/family.h"
#include "worker/stage/gpt.h"
#include "worker/stage/llama.h"
#include "worker/stage/torch_device.h"

namespace longhaul::worker {

namespace {

std::unique_ptr<Model> Make(const StageOptions& options) {
  switch (options.model.family) {
    case ModelFamily::kLlama:
      return std::make_unique<Llama>(options);
    case ModelFamily::kGpt:
      break;
  }
  return std::make_unique<Gpt>(options);
}

}  // namespace

std::unique_ptr<Model> Model::Create(const StageOptions& options) {
  std::unique_ptr<Model> made = Make(options);
  LH_CHECK(made->maker_.done(), "family {} makes {} parameters, fewer than its descriptor has",
           ToString(options.model.family), made->parameters().size());
  return made;
}

Model::Model(const StageOptions& options)
    : first_(options.first),
      last_(options.last),
      block_count_(options.layers),
      maker_(model::ParametersOf(options.model, options.vocabulary_rows(),
                                 {.first_layer = options.first_layer,
                                  .layers = options.layers,
                                  .embedding = options.first,
                                  .head = options.last}),
             options.timing_only ? std::nullopt : std::optional(options.train.seed),
             TorchDevice(options.device),
             options.train.dtype == ComputeDtype::kBf16 ? at::kBFloat16 : at::kFloat) {}

at::Tensor Model::Forward(const at::Tensor& input) const {
  at::Tensor x = first_ ? Embed(input) : input;
  for (size_t block = 0; block < block_count_; ++block) x = RunBlock(block, x);
  return last_ ? Logits(x) : x;
}

at::Tensor Model::Loss(const at::Tensor& logits, const at::Tensor& targets) {
  return at::cross_entropy_loss(logits.reshape({-1, logits.size(-1)}), targets.reshape({-1}));
}

}  // namespace longhaul::worker
