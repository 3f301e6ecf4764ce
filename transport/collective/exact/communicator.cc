#include <algorithm>
#include <utility>
#include <vector>

#include "transport/collective/core/call.h"
#include "transport/collective/engine/engine.h"
#include "transport/collective/engine/over.h"
#include "transport/collective/exact/factory.h"

namespace longhaul::collective::exact {
namespace {

// Up to so many bytes a second exchange costs more than the bytes that it saves.
constexpr uint64_t kOneExchangeBytes = 8 << 10;

// Which elements of a buffer a rank sums.
struct Parts {
  uint64_t stride = 0;  // from one part to the next
  uint64_t count = 0;   // of the whole buffer
  uint64_t first(uint32_t rank) const { return std::min(rank * stride, count); }
  uint64_t size(uint32_t rank) const { return first(rank + 1) - first(rank); }
};

class ExactCommunicator final : public CommunicatorOver {
 public:
  ExactCommunicator(std::shared_ptr<Communicator> below, const Options& options,
                    std::unique_ptr<Engine> engine)
      : CommunicatorOver("fp32 sums", std::move(below), options.call_limit),
        engine_(std::move(engine)) {}

  Status AllReduce(const void* in, void* out, uint64_t count, Dtype dtype, Reduction reduction,
                   Queue queue) override {
    if (!Sums(dtype, reduction, count)) {
      return Pass([&] { return below().AllReduce(in, out, count, dtype, reduction, queue); });
    }
    LH_RETURN_IF_ERROR(
        internal::CheckArguments({Op::kAllReduce, dtype, reduction, 0, count}, size(), in, out));
    if (GathersWhole(count, dtype)) return SumWhole(in, out, count, dtype, queue);
    const Parts parts{PartOf(count), count};
    std::byte* const own = At(out, parts.first(rank()), dtype);
    LH_RETURN_IF_ERROR(SumOwnPart(in, own, parts, dtype, queue));
    LH_RETURN_IF_ERROR(Gather(own, out, parts, dtype, queue));
    const uint64_t others = count - parts.size(rank());
    Count((others + (size() - 1) * parts.size(rank())) * BytesPerElement(dtype));
    return absl::OkStatus();
  }
  Status ReduceScatter(const void* in, void* out, uint64_t count, Dtype dtype, Reduction reduction,
                       Queue queue) override {
    if (!Sums(dtype, reduction, count)) {
      return Pass([&] { return below().ReduceScatter(in, out, count, dtype, reduction, queue); });
    }
    LH_RETURN_IF_ERROR(internal::CheckArguments({Op::kReduceScatter, dtype, reduction, 0, count},
                                                size(), in, out));
    const Parts parts{count, count * size()};
    LH_RETURN_IF_ERROR(SumOwnPart(in, out, parts, dtype, queue));
    Count((size() - 1) * count * BytesPerElement(dtype));
    return absl::OkStatus();
  }
  Status AllGather(const void* in, void* out, uint64_t count, Dtype dtype, Queue queue) override {
    return Pass([&] { return below().AllGather(in, out, count, dtype, queue); });
  }
  Status AllToAllV(const void* in, std::span<const Block> send, void* out,
                   std::span<const Block> receive, Dtype dtype, Queue queue) override {
    return Pass([&] { return below().AllToAllV(in, send, out, receive, dtype, queue); });
  }
  Status Prepare(Op op, uint64_t count, Dtype dtype) override {
    LH_RETURN_IF_ERROR(below().Prepare(op, count, dtype));
    if (op != Op::kAllReduce && op != Op::kReduceScatter) return absl::OkStatus();
    LH_RETURN_IF_ERROR(below().Prepare(Op::kAllToAll, count, dtype));
    LH_RETURN_IF_ERROR(below().Prepare(Op::kAllGather, count, dtype));
    // `count` is that of the larger buffer: parts of a reduce-scatter are no larger than those of
    // an all-reduce. Smaller calls may gather kOneExchangeBytes of each rank.
    const uint64_t bytes = count * BytesPerElement(dtype);
    const uint64_t of_part = PartOf(count) * BytesPerElement(dtype);
    const uint64_t each =
        size() == 2 ? bytes : std::max(of_part, std::min(bytes, kOneExchangeBytes));
    return Reserve(*engine_, size() * std::max(each, of_part), &received_);
  }

 private:
  static std::byte* At(void* data, uint64_t element, Dtype dtype) {
    return static_cast<std::byte*>(data) + element * BytesPerElement(dtype);
  }
  static const std::byte* At(const void* data, uint64_t element, Dtype dtype) {
    return static_cast<const std::byte*>(data) + element * BytesPerElement(dtype);
  }
  bool Sums(Dtype dtype, Reduction reduction, uint64_t count) const {
    return dtype != Dtype::kBytes && reduction == Reduction::kSum && size() > 1 && count > 0;
  }
  // Two ranks send as many bytes in one exchange as in two.
  bool GathersWhole(uint64_t count, Dtype dtype) const {
    return size() == 2 || count * BytesPerElement(dtype) <= kOneExchangeBytes;
  }
  // Elements of a rank's part of an all-reduce, so many that every part begins aligned to 16 bytes.
  uint64_t PartOf(uint64_t count) const {
    constexpr uint64_t kStep = 8;
    return (count + size() * kStep - 1) / (size() * kStep) * kStep;
  }
  // The calls below count nothing: one call of this communicator is one call.
  void Count(uint64_t bytes) {
    ++counted().calls;
    counted().tensor_bytes += bytes;
    counted().sent_bytes += bytes;
  }

  Status SumWhole(const void* in, void* out, uint64_t count, Dtype dtype, Queue queue) {
    const uint64_t bytes = count * BytesPerElement(dtype);
    LH_RETURN_IF_ERROR(Limited([&] { return Reserve(*engine_, size() * bytes, &received_); }));
    LH_RETURN_IF_ERROR(below().AllGather(in, received_.data(), count, dtype, queue));
    std::vector<const void*> summed;
    for (uint32_t r = 0; r < size(); ++r) summed.push_back(received_.data() + r * bytes);
    Count((size() - 1) * bytes);
    return engine_->Sum(summed, count, dtype, out, queue);
  }
  Status SumOwnPart(const void* in, void* out, const Parts& parts, Dtype dtype, Queue queue) {
    const uint64_t own = parts.size(rank());
    const uint64_t bytes = size() * parts.stride * BytesPerElement(dtype);
    LH_RETURN_IF_ERROR(Limited([&] { return Reserve(*engine_, bytes, &received_); }));
    std::vector<Block> send(size()), receive(size());
    std::vector<const void*> summed;
    for (uint32_t r = 0; r < size(); ++r) {
      if (r == rank()) {
        summed.push_back(At(in, parts.first(r), dtype));
        continue;
      }
      send[r] = {parts.first(r), parts.size(r)};
      receive[r] = {r * parts.stride, own};
      summed.push_back(At(received_.data(), r * parts.stride, dtype));
    }
    LH_RETURN_IF_ERROR(below().AllToAllV(in, send, received_.data(), receive, dtype, queue));
    return own == 0 ? absl::OkStatus() : engine_->Sum(summed, own, dtype, out, queue);
  }
  // `own`: this rank's part of `out`.
  Status Gather(const std::byte* own, void* out, const Parts& parts, Dtype dtype, Queue queue) {
    if (parts.size(0) == parts.size(size() - 1)) {
      return below().AllGather(own, out, parts.stride, dtype, queue);
    }
    std::vector<Block> send(size()), receive(size());
    for (uint32_t r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      send[r] = {0, parts.size(rank())};
      receive[r] = {parts.first(r), parts.size(r)};
    }
    return below().AllToAllV(own, send, out, receive, dtype, queue);
  }

  const std::unique_ptr<Engine> engine_;
  OwnedMemory received_;  // the other ranks' numbers of this rank's part
};

}  // namespace

StatusOr<std::unique_ptr<Communicator>> Create(std::shared_ptr<Communicator> below,
                                               const cuda::Device* device, const Options& options) {
  LH_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, EngineFor(*below, device));
  return std::make_unique<ExactCommunicator>(std::move(below), options, std::move(engine));
}

}  // namespace longhaul::collective::exact
