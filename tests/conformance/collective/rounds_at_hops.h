// Collectives whose sums are those of a ring: another rank than the first begins, and every hop
// rounds the sum to the dtype, as NCCL's rings do. For host memory.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "transport/collective/core/call.h"
#include "transport/collective/engine/engine.h"
#include "transport/collective/engine/over.h"

namespace longhaul::collective {

class RoundsAtHops final : public CommunicatorOver {
 public:
  explicit RoundsAtHops(std::shared_ptr<Communicator> below)
      : CommunicatorOver("hops", std::move(below), absl::InfiniteDuration()),
        engine_(Engine::ForHost()) {}

  Status AllReduce(const void* in, void* out, uint64_t count, Dtype dtype, Reduction reduction,
                   Queue queue) override {
    if (reduction != Reduction::kSum || dtype == Dtype::kBytes) {
      return Pass([&] { return below().AllReduce(in, out, count, dtype, reduction, queue); });
    }
    LH_RETURN_IF_ERROR(
        internal::CheckArguments({Op::kAllReduce, dtype, reduction, 0, count}, size(), in, out));
    std::vector<std::byte> all(size() * count * BytesPerElement(dtype));
    LH_RETURN_IF_ERROR(
        Pass([&] { return below().AllGather(in, all.data(), count, dtype, queue); }));
    return Add(all, 1, count, dtype, out);
  }
  Status ReduceScatter(const void* in, void* out, uint64_t count, Dtype dtype, Reduction reduction,
                       Queue queue) override {
    if (reduction != Reduction::kSum || dtype == Dtype::kBytes) {
      return Pass([&] { return below().ReduceScatter(in, out, count, dtype, reduction, queue); });
    }
    LH_RETURN_IF_ERROR(internal::CheckArguments({Op::kReduceScatter, dtype, reduction, 0, count},
                                                size(), in, out));
    std::vector<std::byte> parts(size() * count * BytesPerElement(dtype));
    LH_RETURN_IF_ERROR(
        Pass([&] { return below().AllToAll(in, parts.data(), count, dtype, queue); }));
    return Add(parts, rank() + 1, count, dtype, out);
  }
  Status AllGather(const void* in, void* out, uint64_t count, Dtype dtype, Queue queue) override {
    return Pass([&] { return below().AllGather(in, out, count, dtype, queue); });
  }
  Status AllToAllV(const void* in, std::span<const Block> send, void* out,
                   std::span<const Block> receive, Dtype dtype, Queue queue) override {
    return Pass([&] { return below().AllToAllV(in, send, out, receive, dtype, queue); });
  }
  Status Prepare(Op op, uint64_t count, Dtype dtype) override {
    return below().Prepare(op, count, dtype);
  }

 private:
  // Adds the ranks' parts of `count` elements, two at a time, from rank `first` on.
  Status Add(const std::vector<std::byte>& parts, uint32_t first, uint64_t count, Dtype dtype,
             void* out) {
    const auto part = [&](uint32_t hop) {
      return parts.data() + (first + hop) % size() * count * BytesPerElement(dtype);
    };
    LH_RETURN_IF_ERROR(engine_->Copy(out, part(0), count * BytesPerElement(dtype), {}));
    for (uint32_t hop = 1; hop < size(); ++hop) {
      LH_RETURN_IF_ERROR(
          engine_->Sum(std::array<const void*, 2>{out, part(hop)}, count, dtype, out, {}));
    }
    return absl::OkStatus();
  }
  const std::unique_ptr<Engine> engine_;
};

}  // namespace longhaul::collective
