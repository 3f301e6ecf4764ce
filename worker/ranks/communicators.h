// The backends of a group's collectives, as a run file asks for them: NCCL among GPUs that have
// direct links, rings in host memory among those that have none (collective/mapped), Unix sockets
// among ranks of the CPU; over these what compresses sums.
#ifndef LONGHAUL_WORKER_RANKS_COMMUNICATORS_H_
#define LONGHAUL_WORKER_RANKS_COMMUNICATORS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "transport/collective/communicator.h"
#include "worker/stage/group/communicators.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

// What blocks exchange in bf16: of each operation the bytes of its largest tensor, as a switcher
// counts them. Of experts' tokens those where all experts are equally busy.
struct BlockExchange {
  collective::Op op = collective::Op::kAllReduce;
  uint64_t bytes = 0;
  friend bool operator==(const BlockExchange&, const BlockExchange&) = default;
};
std::vector<BlockExchange> BlockExchangesOf(const StageOptions& options);

// By which way GPUs exchange.
enum class GroupPath : uint8_t {
  kBest,    // kNccl where all reach each other's memory, or are too many; else kMapped
  kNccl,    // direct links, or what NCCL has instead
  kMapped,  // host memory that all map
};

// For the stage of `options`. Thread-safe. GPUs: LoadTorchCuda came before, and with it NCCL.
//
// GroupCollective::kAuto: a switcher of the native communicator and zip (switcher/factory.h), which
// takes about a second for its probe, or reads it from `probes`, a folder; "": no probe is kept. It
// stays only where zip is taken for what this stage's ranks exchange: else the native communicator
// does all. Passes are recorded wherever no call waits for sizes on the host: without zip, and with
// zip through host memory that GPUs map. Sums in fp32 are never zip's, so those stages probe
// nothing.
//
// NCCL_P2P_DISABLE=1 in the environment says of all GPUs that they have no direct links.
MakeCommunicators CommunicatorsFor(const StageOptions& options, const std::string& probes = "",
                                   GroupPath path = GroupPath::kBest);

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_RANKS_COMMUNICATORS_H_
