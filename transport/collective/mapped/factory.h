// Collectives for GPUs of one machine without peer access. Messages go through rings of slots in
// host memory that all GPUs map. Each rank has its own device; ranks are threads or processes.
//
// A kernel on each GPU writes into its own rings and at the same time reads from those of the other
// GPUs, at the rate of the bus (docs/results/collectives.md compares it with NCCL). The host takes
// no part, so CUDA graphs can record calls, and only the device needs to know a message's length
// (Blobs). Sums are computed in fp32, in the order of ranks, and rounded once. So all ranks get the
// same bits.
#pragma once

#include <memory>

#include "base/cuda/device.h"
#include "transport/collective/communicator.h"
#include "transport/collective/member.h"

namespace longhaul::collective::mapped {

inline constexpr uint32_t kMostRanks = 16;

// All ranks call Create, each with another device. Blocks until all ranks have done so. If a call
// of the communicator uses another queue than the call before, the caller must make that queue wait
// for the call before. The communicator sets the member's OnEnd. A rank allocates about 16 MiB of
// host memory for each other rank, and every rank pins the memory of all. kResourceExhausted: the
// host cannot pin so much. kFailedPrecondition: ranks cannot open each other's memory, for example
// in two containers. kUnimplemented: more than kMostRanks. Other errors are those of Member::Tell.
StatusOr<std::unique_ptr<Communicator>> Create(std::shared_ptr<Member> member,
                                               const cuda::Device& device, Deadline deadline);

}  // namespace longhaul::collective::mapped
