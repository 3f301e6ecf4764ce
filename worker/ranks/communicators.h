// The backends of a group's collectives, as a run file asks for them: NCCL among GPUs, Unix sockets
// among ranks of the CPU; over these what compresses sums.
#ifndef LONGHAUL_WORKER_RANKS_COMMUNICATORS_H_
#define LONGHAUL_WORKER_RANKS_COMMUNICATORS_H_

#include "run/file/run_spec.h"
#include "worker/stage/group/communicators.h"

namespace longhaul::worker {

// Thread-safe. GPUs: LoadTorchCuda came before, and with it NCCL.
MakeCommunicators CommunicatorsFor(const GroupSpec& group);

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_RANKS_COMMUNICATORS_H_
