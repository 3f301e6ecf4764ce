// Collectives of NCCL on GPUs of one machine: a rank a device, threads of one process or processes.
//
// Uses the libnccl.so.2 that the process has (LibTorch brings one), or the one that it finds beside
// LibTorch or where the system looks for libraries. Sums are NCCL's: their order is NCCL's choice.
#ifndef LONGHAUL_TRANSPORT_COLLECTIVE_NCCL_FACTORY_H_
#define LONGHAUL_TRANSPORT_COLLECTIVE_NCCL_FACTORY_H_

#include <memory>
#include <string>
#include <vector>

#include "base/cuda/device.h"
#include "transport/collective/communicator.h"
#include "transport/collective/member.h"

namespace longhaul::collective::nccl {

struct Options {
  // Tried in this order, after what the process has loaded already.
  std::vector<std::string> libraries = {"libnccl.so.2"};
};

// All ranks call it, each with another device. Blocks until NCCL has connected them.
// kFailedPrecondition: there is no NCCL, or an older one than 2.18.
StatusOr<std::unique_ptr<Communicator>> Create(std::shared_ptr<Member> member,
                                               const cuda::Device& device, const Options& options,
                                               Deadline deadline);

}  // namespace longhaul::collective::nccl

#endif  // LONGHAUL_TRANSPORT_COLLECTIVE_NCCL_FACTORY_H_
