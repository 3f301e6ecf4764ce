// Collectives of GPUs of one machine that have no direct link to each other: through rings in host
// memory which all of them map. A rank a device, threads of one process or processes.
//
// A kernel on each GPU writes into rings and reads from those of the others, both at once, as fast
// as the bus carries it (docs/results/collectives.md has it beside NCCL). No host takes part, so
// calls may be recorded, and a message may be as long as only the device knows (Blobs). Sums are
// made in fp32 in the order of ranks and rounded once: the same bits on all ranks.
#ifndef LONGHAUL_TRANSPORT_COLLECTIVE_MAPPED_FACTORY_H_
#define LONGHAUL_TRANSPORT_COLLECTIVE_MAPPED_FACTORY_H_

#include <memory>

#include "base/cuda/device.h"
#include "transport/collective/communicator.h"
#include "transport/collective/member.h"

namespace longhaul::collective::mapped {

inline constexpr uint32_t kMostRanks = 16;

// All ranks call it, each with another device. A call on another queue than the one before must be
// ordered after it by the caller. A rank has some 16 MiB of host memory for each other rank; all
// ranks pin all of it. kResourceExhausted: the host cannot. kFailedPrecondition: ranks cannot open
// each other's memory, as those of two containers. kUnimplemented: more than kMostRanks.
StatusOr<std::unique_ptr<Communicator>> Create(std::shared_ptr<Member> member,
                                               const cuda::Device& device, Deadline deadline);

}  // namespace longhaul::collective::mapped

#endif  // LONGHAUL_TRANSPORT_COLLECTIVE_MAPPED_FACTORY_H_
