// A small stage whose reducer the fuzz target feeds with messages; the program that makes the seeds
// uses it too. It has two buckets and two parameters. One parameter may be sparse.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "transport/replicas/reducer.h"

namespace longhaul::replicas {

class FuzzedStage {
 public:
  // `forms` chooses the number of replicas and the forms of gradients and parameters. The
  // constructor begins step 1 and gives its gradients.
  FuzzedStage(uint8_t forms, uint32_t replica, Outbox* outbox)
      : gradients_(kMatrix + kVector), values_(kMatrix + kVector) {
    LayoutOptions options{.replicas = 2 + forms % 2u, .bucket_elements = 4096};
    options.gradients.form = static_cast<GradientForm>(forms / 2 % 4);
    options.gradients.least = 100;
    options.parameters = static_cast<ParameterForm>(forms / 8 % 3);
    auto layout = Layout::Make({{.name = "w", .elements = kMatrix, .may_be_sparse = true},
                                {.name = "b", .elements = kVector}},
                               options);
    Must(layout.status());
    auto reducer = Reducer::Create(*std::move(layout), {.replica = replica}, outbox);
    Must(reducer.status());
    reducer_ = *std::move(reducer);
    for (size_t k = 0; k < gradients_.size(); ++k) gradients_[k] = static_cast<float>(k % 97) - 48;
    const std::span<const float> gradients(gradients_);
    const std::span<float> values(values_);
    Must(reducer_->Begin(1, {{gradients.first(kMatrix), values.first(kMatrix)},
                             {gradients.last(kVector), values.last(kVector)}}));
    for (uint32_t bucket = 0; bucket < buckets(); ++bucket) Must(reducer_->GiveGradients(bucket));
  }

  // Takes a message, then gives the parameters of each bucket that is now reduced.
  Status Take(uint32_t from, std::vector<std::byte> message) {
    Status status = reducer_->Take(from, std::move(message));
    published_.resize(buckets());
    for (uint32_t bucket = 0; status.ok() && bucket < buckets(); ++bucket) {
      if (!reducer_->IsReduced(bucket) || published_[bucket]) continue;
      published_[bucket] = true;
      Must(reducer_->GiveParameters(bucket));
    }
    return status;
  }

  uint32_t buckets() const { return static_cast<uint32_t>(reducer_->layout().buckets().size()); }
  uint64_t fingerprint() const { return reducer_->layout().fingerprint(); }

 private:
  static constexpr size_t kMatrix = 5000, kVector = 70;
  static void Must(const Status& status) {
    if (!status.ok()) std::abort();
  }

  std::vector<float> gradients_, values_;
  std::unique_ptr<Reducer> reducer_;
  std::vector<bool> published_;
};

}  // namespace longhaul::replicas
