// Chooses the collectives of a tensor-parallel group. GPUs with peer access (NVLink, PCIe) use
// NCCL. GPUs without it use rings in host memory (collective/mapped), or NCCL if they are too many
// for that. Ranks on the CPU use Unix sockets. Collectives with compression, if the run file asks
// for them, work on top of these.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/collective/communicator.h"
#include "worker/stage/group/communicators.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// An operation by which the ranks exchange bf16 tensors of a block, and the bytes of the largest
// tensor of one such call, input or output: the size by which a switcher chooses
// (switcher/factory.h). Tokens of experts are counted as if all experts got equally many.
struct BlockExchange {
  collective::Op op = collective::Op::kAllReduce;
  uint64_t bytes = 0;
  friend bool operator==(const BlockExchange&, const BlockExchange&) = default;
};
// Returns one entry for each operation; none unless the stage computes in bf16.
std::vector<BlockExchange> BlockExchangesOf(const StageOptions& options);

// How the GPUs of a group exchange.
enum class GroupPath : uint8_t {
  kBest,    // kNccl if all GPUs have peer access, or if they are too many for kMapped; else kMapped
  kNccl,    // NCCL, even without peer access
  kMapped,  // rings in host memory that all GPUs map
};

// Returns the function that makes the communicators of each rank of a stage. It is thread-safe. For
// GPUs call LoadTorchCuda first, because that loads NCCL.
//
// "Native" means the collectives above without compression; "zip" means lossless compression on top
// of them. For GroupCollective::kAuto a switcher measures both (switcher/factory.h). This probe
// takes about a second. Its result is kept in the folder `probes` and read from there later; "":
// not kept. If the probe chooses zip for none of this stage's exchanges, the ranks use the native
// communicator without a switcher. Zip never sums fp32, so stages that sum in fp32 probe nothing.
//
// CUDA graphs can record the passes if no call waits on the host for the size of a blob: without
// zip, or with zip over kMapped.
//
// If the environment has NCCL_P2P_DISABLE=1, GPUs count as without peer access.
MakeCommunicators CommunicatorsFor(const StageOptions& options, const std::string& probes = "",
                                   GroupPath path = GroupPath::kBest);

}  // namespace longhaul::worker
