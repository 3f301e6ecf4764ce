#include "worker/ranks/communicators.h"

#include <optional>
#include <utility>

#include "base/cuda/device.h"
#include "base/cuda/module.h"
#include "transport/collective/host/factory.h"
#include "transport/collective/nccl/factory.h"
#include "transport/collective/taco/factory.h"
#include "transport/collective/zip/factory.h"

namespace longhaul::worker {
namespace {

using collective::Communicator;

StatusOr<std::shared_ptr<Communicator>> Compressed(GroupCollective what,
                                                   const std::shared_ptr<Communicator>& exact,
                                                   const cuda::Device* device) {
  switch (what) {
    case GroupCollective::kTaco:
      return collective::taco::Create(exact, device, {});
    case GroupCollective::kZip:
      return collective::zip::Create(exact, device, {});
    case GroupCollective::kNone:
      break;
  }
  return exact;
}

}  // namespace

MakeCommunicators CommunicatorsFor(const GroupSpec& group) {
  return [group](std::shared_ptr<collective::Member> member, const DeviceName& name,
                 Deadline deadline) -> StatusOr<RankCommunicators> {
    std::optional<cuda::Device> device;
    RankCommunicators made;
    if (name.cuda_index) {
      LH_ASSIGN_OR_RETURN(const cuda::DeviceTable* const table,
                          cuda::LoadModule(cuda::DefaultModulePath()));
      LH_ASSIGN_OR_RETURN(device, cuda::Device::Open(table, *name.cuda_index));
      LH_ASSIGN_OR_RETURN(made.exact,
                          collective::nccl::Create(std::move(member), *device, {}, deadline));
    } else {
      LH_ASSIGN_OR_RETURN(made.exact, collective::host::Create(std::move(member), {}, deadline));
    }
    const cuda::Device* const on = device ? &*device : nullptr;
    LH_ASSIGN_OR_RETURN(made.forward, Compressed(group.forward, made.exact, on));
    made.backward = made.forward;
    if (group.backward != group.forward) {
      LH_ASSIGN_OR_RETURN(made.backward, Compressed(group.backward, made.exact, on));
    }
    return made;
  };
}

}  // namespace longhaul::worker
