// Chooses the collectives of a tensor-parallel group, that is, the code by which its ranks sum and
// gather tensors. GPUs with peer access (NVLink, PCIe) use NCCL. GPUs without peer access use rings
// in host memory (transport/collective/mapped), or NCCL if the group is too large for these rings.
// If the ranks have channels of their own (p < 1), more than two ranks of NCCL sum in fp32
// (transport/collective/exact); all other collectives here always do.
// Ranks on the CPU use Unix sockets. Compressing collectives, if the run file asks for them, work
// on top of the collectives above.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/collective/communicator.h"
#include "worker/stage/group/communicators.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// A collective operation by which the ranks of a group exchange bf16 tensors in each block of the
// model. `bytes`: the size of the call's input or output, whichever is larger. For tokens sent to
// experts, `bytes` assumes that all experts get equally many tokens.
struct BlockExchange {
  collective::Op op = collective::Op::kAllReduce;
  uint64_t bytes = 0;
  friend bool operator==(const BlockExchange&, const BlockExchange&) = default;
};
// Returns one entry for each operation; none unless the stage computes in bf16.
std::vector<BlockExchange> BlockExchangesOf(const StageOptions& options);

// How the GPUs of a group exchange. Groups on the CPU ignore it.
enum class GroupPath : uint8_t {
  kBest,    // kNccl if all GPUs have peer access, or if they are too many for kMapped; else kMapped
  kNccl,    // NCCL, even without peer access
  kMapped,  // rings in host memory that all GPUs map
};

// Returns a function that makes the communicators of each rank of a stage, for MakeGroupStage. The
// function is thread-safe and keeps copies of the arguments. Call LoadTorchCuda first if the ranks
// are GPUs, because LoadTorchCuda loads NCCL. Errors of the function: those of the communicators'
// Create functions; kFailedPrecondition or kInvalidArgument: the rank's GPU cannot be used.
//
// "Native" means the collectives above without compression; "zip" means lossless compression on top
// of them. For GroupCollective::kAuto the ranks measure both for about a second and then choose by
// the size of a call (transport/collective/switcher/factory.h). The measurement is kept in the
// folder `probes` and read from there later; "": not kept. If zip is chosen for none of this
// stage's exchanges, the ranks use only the native communicator. Zip never sums fp32, so stages
// that sum in fp32 measure nothing.
//
// RankCommunicators::recordable is true if CUDA graphs can record the calls: without zip, or with
// zip over kMapped. With zip over NCCL the host waits for the size of each compressed message.
//
// If the environment has NCCL_P2P_DISABLE=1, GPUs count as without peer access.
MakeCommunicators CommunicatorsFor(const StageOptions& options, const std::string& probes = "",
                                   GroupPath path = GroupPath::kBest);

}  // namespace longhaul::worker
