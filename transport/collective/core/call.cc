#include "transport/collective/core/call.h"

#include <fmt/core.h>

namespace longhaul::collective::internal {
namespace {

// Far beyond any memory, and far from overflowing with the largest group.
constexpr uint64_t kMaxElements = uint64_t{1} << 48;

bool IsDtype(Dtype dtype) {
  return dtype <= Dtype::kBf16;
}

Status CheckDtype(Dtype dtype) {
  if (IsDtype(dtype)) return absl::OkStatus();
  return InvalidArgument("no dtype has the number {}", static_cast<int>(dtype));
}

}  // namespace

std::string_view ToString(Reduction reduction) {
  return reduction == Reduction::kSum ? "sum" : "max";
}

std::string ToString(const Call& call) {
  const bool reduces = call.op == Op::kAllReduce || call.op == Op::kReduceScatter;
  std::string text(collective::ToString(call.op));
  if (reduces) text += fmt::format("({})", ToString(call.reduction));
  if (call.op == Op::kBarrier) return text;
  if (call.op == Op::kAllToAll) {
    return text + fmt::format(" of {}", collective::ToString(call.dtype));
  }
  text += fmt::format(" of {} {}", call.count, collective::ToString(call.dtype));
  if (call.op == Op::kBroadcast) text += fmt::format(" from rank {}", call.root);
  return text;
}

Status Check(const Call& call, uint32_t size) {
  LH_RETURN_IF_ERROR(CheckDtype(call.dtype));
  if (call.op == Op::kAllReduce || call.op == Op::kReduceScatter) {
    if (call.reduction > Reduction::kMax) {
      return InvalidArgument("no reduction has the number {}", static_cast<int>(call.reduction));
    }
    if (call.dtype == Dtype::kBytes) {
      return InvalidArgument("{} is of numbers; bytes have no {}", collective::ToString(call.op),
                             ToString(call.reduction));
    }
  }
  if (call.op == Op::kBroadcast && call.root >= size) {
    return InvalidArgument("a broadcast comes from a rank of the group, 0 to {}; got {}", size - 1,
                           call.root);
  }
  if (call.count > kMaxElements) {
    return InvalidArgument("{} has more elements than any memory holds", ToString(call));
  }
  return absl::OkStatus();
}

Status CheckPointer(const void* data, uint64_t count, Dtype dtype, std::string_view name) {
  if (count == 0) return absl::OkStatus();
  if (data == nullptr) {
    return InvalidArgument("`{}` is null, with {} elements", name, count);
  }
  if (reinterpret_cast<uintptr_t>(data) % BytesPerElement(dtype) != 0) {
    return InvalidArgument("`{}` is not aligned to its elements, {}", name,
                           collective::ToString(dtype));
  }
  return absl::OkStatus();
}

Status CheckBlocks(std::span<const Block> blocks, uint32_t size, Dtype dtype,
                   std::string_view name) {
  LH_RETURN_IF_ERROR(CheckDtype(dtype));
  if (blocks.size() != size) {
    return InvalidArgument("`{}` has {} blocks, expected one for each of the {} ranks", name,
                           blocks.size(), size);
  }
  for (const Block& block : blocks) {
    if (block.offset > kMaxElements || block.count > kMaxElements) {
      return InvalidArgument("`{}` has a block of {} elements at {}: more than any memory holds",
                             name, block.count, block.offset);
    }
  }
  return absl::OkStatus();
}

Status CheckArguments(const Call& call, uint32_t size, const void* in, const void* out) {
  LH_RETURN_IF_ERROR(Check(call, size));
  LH_RETURN_IF_ERROR(CheckPointer(in, call.count, call.dtype, in == out ? "data" : "in"));
  return CheckPointer(out, call.count, call.dtype, "out");
}

Status CheckAllToAll(uint32_t rank, uint32_t size, const void* in, std::span<const Block> send,
                     const void* out, std::span<const Block> receive, Dtype dtype) {
  LH_RETURN_IF_ERROR(CheckBlocks(send, size, dtype, "send"));
  LH_RETURN_IF_ERROR(CheckBlocks(receive, size, dtype, "receive"));
  uint64_t sent = 0, received = 0;
  for (uint32_t r = 0; r < size; ++r) {
    sent += send[r].count;
    received += receive[r].count;
  }
  LH_RETURN_IF_ERROR(CheckPointer(in, sent, dtype, "in"));
  LH_RETURN_IF_ERROR(CheckPointer(out, received, dtype, "out"));
  if (send[rank].count == receive[rank].count) return absl::OkStatus();
  return InvalidArgument("rank {} sends itself {} elements and expects {} of itself", rank,
                         send[rank].count, receive[rank].count);
}

}  // namespace longhaul::collective::internal
