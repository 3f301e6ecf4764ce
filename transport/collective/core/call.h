// Describes one collective call and checks its arguments, as every backend does before it sends
// anything. Every check returns kInvalidArgument if it fails. Pure.
#pragma once

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
  Reduction reduction = Reduction::kSum;  // for kAllReduce and kReduceScatter
  uint32_t root = 0;                      // for kBroadcast
  uint64_t count = 0;                     // the caller's count; 0 for kAllToAll and kBarrier

  bool operator==(const Call&) const = default;
};
// For people: "AllReduce(sum) of 16 bf16", "Broadcast of 4 f32 from rank 1", "Barrier".
std::string ToString(const Call& call);
std::string_view ToString(Reduction reduction);

// Checks that dtype, reduction, root and count are possible in a group of `size` ranks.
Status Check(const Call& call, uint32_t size);
// Checks that `data` is not null, unless `count` is 0, and that it is aligned to its elements.
// Error messages call the argument `name`, for example "in".
Status CheckPointer(const void* data, uint64_t count, Dtype dtype, std::string_view name);
// Checks that there is one block for each rank, and that no offset or count is above 2^48. Does not
// check that the blocks lie inside the buffer.
Status CheckBlocks(std::span<const Block> blocks, uint32_t size, Dtype dtype,
                   std::string_view name);

// Runs Check, and CheckPointer for `in` and `out`. For calls with one input and one output buffer.
Status CheckArguments(const Call& call, uint32_t size, const void* in, const void* out);
// Runs CheckBlocks and CheckPointer for both directions of an all-to-all. Also checks that this
// rank's block to itself is as long as its block from itself.
Status CheckAllToAll(uint32_t rank, uint32_t size, const void* in, std::span<const Block> send,
                     const void* out, std::span<const Block> receive, Dtype dtype);

}  // namespace longhaul::collective::internal
