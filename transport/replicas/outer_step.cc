#include "transport/replicas/outer_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/check.h"

namespace longhaul::replicas {
namespace {

// Numbers that a thread takes in one go.
constexpr uint64_t kGrain = 16384;

// body(part) of each of these spans, cut alike.
template <class Body, class... Spans>
void ForParts(codec::Parallel* parallel, const Body& body, const Spans&... spans) {
  const uint64_t count = std::get<0>(std::tie(spans...)).size();
  codec::ForRanges(parallel, count, kGrain, kGrain, [&](uint64_t first, uint64_t end) {
    body(spans.subspan(first, end - first)...);
  });
}

}  // namespace

uint64_t DelaySteps(const LocalSgdOptions& options) {
  return static_cast<uint64_t>(options.delay * options.steps);
}

void NesterovStep(const LocalSgdOptions& options, std::span<const float> gradient,
                  std::span<float> momentum, std::span<float> anchor) {
  const auto mu = static_cast<float>(options.momentum);
  const auto rate = static_cast<float>(options.rate);
  for (size_t k = 0; k < gradient.size(); ++k) {
    momentum[k] = mu * momentum[k] + gradient[k];
    anchor[k] -= rate * (gradient[k] + mu * momentum[k]);
  }
}

OuterStep::OuterStep(const LocalSgdOptions& options, std::span<const std::span<const float>> values,
                     codec::Parallel* parallel)
    : options_(options), parallel_(parallel) {
  for (const auto& value : values) anchors_.emplace_back(value.begin(), value.end());
  taken_ = anchors_;
  differences_ = anchors_;
  for (auto& difference : differences_) std::fill(difference.begin(), difference.end(), 0.0f);
}

bool OuterStep::MergeIsDue(uint64_t step) const {
  const uint64_t delay = DelaySteps(options_);
  return step >= options_.steps + delay && (step - delay) % options_.steps == 0;
}

void OuterStep::TakeDifferences(std::span<const std::span<const float>> locals) {
  LH_CHECK(locals.size() == anchors_.size(), "{} parameters, not {}", anchors_.size(),
           locals.size());
  for (size_t k = 0; k < locals.size(); ++k) {
    LH_CHECK(locals[k].size() == anchors_[k].size(), "{} elements, not {}", anchors_[k].size(),
             locals[k].size());
    ForParts(
        parallel_,
        [](auto local, auto anchor, auto taken, auto difference) {
          std::ranges::copy(local, taken.begin());
          for (size_t i = 0; i < local.size(); ++i) difference[i] = anchor[i] - local[i];
        },
        locals[k], std::span<const float>(anchors_[k]), std::span(taken_[k]),
        std::span(differences_[k]));
  }
}

std::vector<ParameterMemory> OuterStep::memory() {
  std::vector<ParameterMemory> memory;
  for (size_t k = 0; k < anchors_.size(); ++k) memory.push_back({differences_[k], anchors_[k]});
  return memory;
}

void OuterStep::PrepareBucket(uint32_t bucket, std::span<const OwnPiece> own) {
  if (momenta_.size() <= bucket) momenta_.resize(bucket + 1);
  momenta_[bucket].resize(own.size());
  for (size_t k = 0; k < own.size(); ++k) momenta_[bucket][k].resize(own[k].gradient.size());
}

void OuterStep::StepMasters(uint32_t bucket, std::span<const OwnPiece> own) {
  PrepareBucket(bucket, own);
  std::vector<std::vector<float>>& momenta = momenta_[bucket];
  for (size_t k = 0; k < own.size(); ++k) {
    ForParts(
        parallel_,
        [this](auto gradient, auto momentum, auto master) {
          NesterovStep(options_, gradient, momentum, master);
        },
        std::span<const float>(own[k].gradient), std::span(momenta[k]), own[k].master);
  }
}

void OuterStep::Merge(std::span<const std::span<float>> locals) {
  LH_CHECK(locals.size() == anchors_.size(), "{} parameters, not {}", anchors_.size(),
           locals.size());
  for (size_t k = 0; k < locals.size(); ++k) {
    ForParts(
        parallel_,
        [](auto local, auto anchor, auto taken) {
          for (size_t i = 0; i < local.size(); ++i) local[i] = anchor[i] + (local[i] - taken[i]);
        },
        locals[k], std::span<const float>(anchors_[k]), std::span<const float>(taken_[k]));
  }
}

std::vector<StateTensor> OuterStep::State() {
  std::vector<StateTensor> state;
  for (size_t k = 0; k < anchors_.size(); ++k) {
    state.push_back({fmt::format("anchor.{}", k), 0, anchors_[k]});
    state.push_back({fmt::format("taken.{}", k), 0, taken_[k]});
  }
  for (size_t b = 0; b < momenta_.size(); ++b) {
    for (size_t k = 0; k < momenta_[b].size(); ++k) {
      state.push_back({fmt::format("momentum.{}.{}", b, k), 0, momenta_[b][k]});
    }
  }
  return state;
}

}  // namespace longhaul::replicas
