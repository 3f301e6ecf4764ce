// A GPU that is host memory and a thread for each stream: what queues work on a device can be
// tested where there is none. It has the kernels of collectives, those of codecs not.
#pragma once

#include "base/cuda/table.h"

namespace longhaul::testing {

// As many devices as are asked for; lives for ever.
const cuda::DeviceTable* FakeGpuTable();

}  // namespace longhaul::testing
