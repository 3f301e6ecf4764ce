// A simulated GPU, for tests of code that queues work on a device, on machines without one. Host
// memory stands for device memory, and each stream has a thread. The kernels of collectives work;
// the kernels of codecs are missing.
#pragma once

#include "base/cuda/table.h"

namespace longhaul::testing {

// Returns the table of functions through which cuda::Device uses the simulated GPU, which has 64
// devices. Never null; valid until the process ends. Thread-safe.
const cuda::DeviceTable* FakeGpuTable();

}  // namespace longhaul::testing
