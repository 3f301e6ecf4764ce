// A group of one rank, whose sums are what it gives: for tests of what a rank does around them.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "worker/stage/group/rank_group.h"

namespace longhaul::testing {

class LoneRank final : public collective::Communicator {
 public:
  // Called before each sum.
  explicit LoneRank(std::function<void()> on_sum = nullptr) : on_sum_(std::move(on_sum)) {}

  uint32_t rank() const override { return 0; }
  uint32_t size() const override { return 1; }
  int device() const override { return -1; }
  std::string Describe() const override { return "one rank"; }
  Status AllReduce(const void* in, void* out, uint64_t count, collective::Dtype dtype,
                   collective::Reduction /*reduction*/, collective::Queue /*queue*/) override {
    return Sum(in, out, count, dtype);
  }
  Status ReduceScatter(const void* in, void* out, uint64_t count, collective::Dtype dtype,
                       collective::Reduction /*reduction*/, collective::Queue /*queue*/) override {
    return Sum(in, out, count, dtype);
  }
  Status AllGather(const void* in, void* out, uint64_t count, collective::Dtype dtype,
                   collective::Queue /*queue*/) override {
    std::memcpy(out, in, count * BytesPerElement(dtype));
    return absl::OkStatus();
  }
  Status AllToAllV(const void* /*in*/, std::span<const collective::Block> /*send*/, void* /*out*/,
                   std::span<const collective::Block> /*receive*/, collective::Dtype /*dtype*/,
                   collective::Queue /*queue*/) override {
    return absl::UnimplementedError("nobody to send to");
  }
  Status Broadcast(void* /*data*/, uint64_t /*count*/, collective::Dtype /*dtype*/,
                   uint32_t /*root*/, collective::Queue /*queue*/) override {
    return absl::OkStatus();
  }
  Status Barrier(collective::Queue /*queue*/) override { return absl::OkStatus(); }
  Status Prepare(collective::Op /*op*/, uint64_t /*count*/, collective::Dtype /*dtype*/) override {
    return absl::OkStatus();
  }
  Status Wait(collective::Queue /*queue*/, Deadline /*deadline*/) override {
    return absl::OkStatus();
  }
  void Abort(const Status& /*reason*/) override {}
  Status status() const override { return absl::OkStatus(); }
  collective::Stats stats() const override { return {}; }

 private:
  Status Sum(const void* in, void* out, uint64_t count, collective::Dtype dtype) {
    if (on_sum_) on_sum_();
    std::memcpy(out, in, count * BytesPerElement(dtype));
    return absl::OkStatus();
  }

  const std::function<void()> on_sum_;
};

// `on_backward_sum`: before each sum of gradients.
inline worker::RankGroup GroupOfOne(const worker::RankGroup::Kind& kind,
                                    std::function<void()> on_backward_sum) {
  const auto exact = std::make_shared<LoneRank>();
  return {kind,
          {.exact = exact,
           .forward = exact,
           .backward = std::make_shared<LoneRank>(std::move(on_backward_sum))},
          nullptr};
}

}  // namespace longhaul::testing
