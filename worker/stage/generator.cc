#include "worker/stage/generator.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/philox.h"
#include "worker/stage/device/torch_device.h"
#include "worker/stage/device/torch_scope.h"
#include "worker/stage/model/model.h"

namespace longhaul::worker {
namespace {

class ModelGenerator final : public Generator {
 public:
  ModelGenerator(const GeneratorOptions& options, std::unique_ptr<Model> model)
      : options_(options), model_(std::move(model)) {}

  void Clear() override { seen_ = {}; }

  StatusOr<std::span<const float>> Next(std::span<const int32_t> ids) override {
    LH_RETURN_IF_ERROR(CheckNext(options_.model, seen_.tokens, ids));
    return CallTorch("generating", options_.threads, [&]() -> StatusOr<std::span<const float>> {
      const at::Tensor input =
          at::from_blob(const_cast<int32_t*>(ids.data()), {1, static_cast<int64_t>(ids.size())},
                        at::kInt)
              .to(at::TensorOptions(at::kLong).device(TorchDevice(options_.device)));
      logits_ = model_->Extend(input, &seen_).to(at::kFloat).cpu().contiguous();
      return std::span(logits_.const_data_ptr<float>(), static_cast<size_t>(logits_.numel()));
    });
  }

 private:
  const GeneratorOptions options_;
  const std::unique_ptr<Model> model_;
  Seen seen_;
  at::Tensor logits_;
};

}  // namespace

Status CheckNext(const ModelSpec& model, int64_t seen, std::span<const int32_t> ids) {
  if (ids.empty()) return absl::InvalidArgumentError("expected at least one token");
  const uint64_t tokens = static_cast<uint64_t>(seen) + ids.size();
  if (tokens > model.context) {
    return absl::OutOfRangeError(
        fmt::format("expected a text of at most {} tokens, the model's context, got {}",
                    model.context, tokens));
  }
  const uint32_t vocabulary = model.vocabulary.value_or(0);
  for (const int32_t id : ids) {
    if (id >= 0 && static_cast<uint32_t>(id) < vocabulary) continue;
    return InvalidArgument("expected ids below the vocabulary of {}; came {}", vocabulary, id);
  }
  return absl::OkStatus();
}

StageOptions StageOptionsOf(const GeneratorOptions& options) {
  StageOptions stage;
  stage.model = options.model;
  stage.vocabulary = options.model.vocabulary.value_or(0);
  stage.layers = options.model.layers;
  stage.train.dtype = options.dtype;
  stage.device = options.device;
  stage.threads = options.threads;
  stage.loads = true;
  return stage;
}

StatusOr<std::unique_ptr<Generator>> Generator::Create(const GeneratorOptions& options,
                                                       const ReadParameter& read) {
  const StageOptions stage = StageOptionsOf(options);
  return CallTorch("making the model", options.threads,
                   [&]() -> StatusOr<std::unique_ptr<Generator>> {
                     std::unique_ptr<Model> model = Model::Create(stage);
                     LH_RETURN_IF_ERROR(model->Load(read));
                     return std::make_unique<ModelGenerator>(options, std::move(model));
                   });
}

uint32_t Sample(std::span<const float> logits, const Sampling& sampling, uint64_t place) {
  if (!(sampling.temperature > 0)) {
    return static_cast<uint32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
  std::vector<uint32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return logits[a] > logits[b]; });
  if (sampling.top_k > 0 && sampling.top_k < order.size()) order.resize(sampling.top_k);
  std::vector<double> sums;  // of probabilities, but for a factor
  double sum = 0;
  for (const uint32_t id : order) {
    sum += std::exp((double{logits[id]} - double{logits[order[0]]}) / sampling.temperature);
    sums.push_back(sum);
  }
  // The likeliest that have enough together.
  const auto enough = std::lower_bound(sums.begin(), sums.end(), sampling.top_p * sum);
  const double kept = enough == sums.end() ? sum : *enough;
  const Philox::Counter random = Philox::Generate(
      {static_cast<uint32_t>(place), static_cast<uint32_t>(place >> 32), 0, 0},
      {static_cast<uint32_t>(sampling.seed), static_cast<uint32_t>(sampling.seed >> 32)});
  const double point = (random[0] + 0.5) / 4294967296.0 * kept;
  const auto taken = std::upper_bound(sums.begin(), sums.end(), point);
  const size_t index = std::min<size_t>(taken - sums.begin(), order.size() - 1);
  return order[index];
}

}  // namespace longhaul::worker
