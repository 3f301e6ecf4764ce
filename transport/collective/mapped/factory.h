// Collectives for GPUs of one machine without peer access, through rings in host memory that all
// GPUs map. One rank a device; ranks are threads or processes.
//
// A kernel on each GPU writes into its rings and reads from those of the others at the same time,
// at the rate of the bus (docs/results/collectives.md compares it with NCCL). The host takes no
// part, so CUDA graphs can record calls, and only the device needs to know a message's length
// (Blobs). Sums are computed in fp32 in the order of ranks and rounded once: the same bits on all
// ranks.
#pragma once

#include <memory>

#include "base/cuda/device.h"
#include "transport/collective/communicator.h"
#include "transport/collective/member.h"

namespace longhaul::collective::mapped {

inline constexpr uint32_t kMostRanks = 16;

// All ranks call it, each with another device. The caller must order a call after the previous one
// if it uses another queue. A rank owns about 16 MiB of host memory for each other rank; all ranks
// pin all of it. kResourceExhausted: the host cannot. kFailedPrecondition: ranks cannot open each
// other's memory, for example in two containers. kUnimplemented: more than kMostRanks.
StatusOr<std::unique_ptr<Communicator>> Create(std::shared_ptr<Member> member,
                                               const cuda::Device& device, Deadline deadline);

}  // namespace longhaul::collective::mapped
