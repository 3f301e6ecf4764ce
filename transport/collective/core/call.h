// One call of a communicator, as all ranks must make it: what every backend checks before it sends
// anything, and the words for it. Pure.
#ifndef LONGHAUL_TRANSPORT_COLLECTIVE_CORE_CALL_H_
#define LONGHAUL_TRANSPORT_COLLECTIVE_CORE_CALL_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "transport/collective/communicator.h"

namespace longhaul::collective::internal {

struct Call {
  Op op = Op::kBarrier;
  Dtype dtype = Dtype::kBytes;
  Reduction reduction = Reduction::kSum;  // of kAllReduce and kReduceScatter
  uint32_t root = 0;                      // of kBroadcast
  uint64_t count = 0;                     // as the call was given it; 0 for kAllToAll and kBarrier

  bool operator==(const Call&) const = default;
};
// "AllReduce(sum) of 16 bf16", "Broadcast of 4 f32 from rank 1", "Barrier".
std::string ToString(const Call& call);
std::string_view ToString(Reduction reduction);

// kInvalidArgument for dtypes, reductions, roots and counts that cannot be in a group of `size`.
Status Check(const Call& call, uint32_t size);
// `name` is the argument's: "in". Null is good for no elements.
Status CheckPointer(const void* data, uint64_t count, Dtype dtype, std::string_view name);
// One block for each rank, and none beyond what memory can hold.
Status CheckBlocks(std::span<const Block> blocks, uint32_t size, Dtype dtype,
                   std::string_view name);

// All of these of a call with one buffer of `call.count` elements to read and one to write.
Status CheckArguments(const Call& call, uint32_t size, const void* in, const void* out);
// All of these of an all-to-all; also that a rank expects of itself what it sends itself.
Status CheckAllToAll(uint32_t rank, uint32_t size, const void* in, std::span<const Block> send,
                     const void* out, std::span<const Block> receive, Dtype dtype);

}  // namespace longhaul::collective::internal

#endif  // LONGHAUL_TRANSPORT_COLLECTIVE_CORE_CALL_H_
