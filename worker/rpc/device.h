// What a worker computes on.
#ifndef LONGHAUL_WORKER_RPC_DEVICE_H_
#define LONGHAUL_WORKER_RPC_DEVICE_H_

#include "base/device_name.h"
#include "base/status.h"
#include "longhaul/v1/worker.pb.h"

namespace longhaul::worker {

// Describes the device for Hello, after a check that it works. A GPU is refused,
// kFailedPrecondition with the reason: at the latest because stages run on the CPU only in this
// version.
StatusOr<v1::Device> OpenDevice(const DeviceName& name);

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_RPC_DEVICE_H_
