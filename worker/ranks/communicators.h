// Chooses the collectives of a tensor-parallel group: NCCL for GPUs with peer access (NVLink,
// PCIe), rings in host memory for GPUs without (collective/mapped), Unix sockets for ranks on the
// CPU; and on top of these the compressed sums of the run file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/collective/communicator.h"
#include "worker/stage/group/communicators.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// The bf16 tensors that a block's ranks exchange: the bytes of the largest tensor of each
// operation, as a switcher counts. Tokens of experts are counted as if all experts were equally
// busy.
struct BlockExchange {
  collective::Op op = collective::Op::kAllReduce;
  uint64_t bytes = 0;
  friend bool operator==(const BlockExchange&, const BlockExchange&) = default;
};
std::vector<BlockExchange> BlockExchangesOf(const StageOptions& options);

// How GPUs exchange.
enum class GroupPath : uint8_t {
  kBest,    // kNccl if all GPUs have peer access or are too many for kMapped; else kMapped
  kNccl,    // peer access, or NCCL's substitute
  kMapped,  // host memory that all GPUs map
};

// Makes communicators for the stage of `options`. Thread-safe. For GPUs call LoadTorchCuda first,
// which loads NCCL.
//
// GroupCollective::kAuto compares the native communicator and zip by a switcher
// (switcher/factory.h). Its probe takes about a second, or comes from the folder `probes` ("": not
// kept). The switcher stays only if zip is chosen for some exchange of this stage; else the native
// communicator does all. CUDA graphs can record the passes whenever no call waits for sizes on the
// host: without zip, and with zip over host memory that GPUs map. Zip never sums fp32, so stages
// that sum in fp32 probe nothing.
//
// NCCL_P2P_DISABLE=1 in the environment means that no GPUs have peer access.
MakeCommunicators CommunicatorsFor(const StageOptions& options, const std::string& probes = "",
                                   GroupPath path = GroupPath::kBest);

}  // namespace longhaul::worker
