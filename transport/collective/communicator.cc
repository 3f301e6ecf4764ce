#include "transport/collective/communicator.h"

#include <array>

#include "transport/collective/core/call.h"
#include "transport/collective/member.h"

namespace longhaul::collective {

std::string_view ToString(Dtype dtype) {
  switch (dtype) {
    case Dtype::kBytes:
      return "bytes";
    case Dtype::kF32:
      return "f32";
    case Dtype::kF16:
      return "f16";
    case Dtype::kBf16:
      return "bf16";
  }
  return "unknown";
}

std::string_view ToString(Op op) {
  switch (op) {
    case Op::kAllReduce:
      return "AllReduce";
    case Op::kReduceScatter:
      return "ReduceScatter";
    case Op::kAllGather:
      return "AllGather";
    case Op::kAllToAll:
      return "AllToAll";
    case Op::kBroadcast:
      return "Broadcast";
    case Op::kBarrier:
      return "Barrier";
  }
  return "unknown";
}

Status Communicator::AllToAll(const void* in, void* out, uint64_t count, Dtype dtype, Queue queue) {
  LH_RETURN_IF_ERROR(
      internal::Check({.op = Op::kAllToAll, .dtype = dtype, .count = count}, size()));
  std::array<Block, kMaxRanks> blocks;
  for (uint32_t rank = 0; rank < size(); ++rank) blocks[rank] = {rank * count, count};
  const auto parts = std::span<const Block>(blocks).first(size());
  return AllToAllV(in, parts, out, parts, dtype, queue);
}

}  // namespace longhaul::collective
