// Collectives that no run has, to see what a group's time is made of. GPUs alone.
#pragma once

#include "worker/stage/group/communicators.h"

namespace longhaul::worker::testing {

// As `make`, but hidden states and their gradients are copied where ranks would sum or gather them:
// every rank goes on with its own part. Numbers are wrong; kernels and sizes are not.
MakeCommunicators WithoutSums(MakeCommunicators make);

// As `make`, whose calls are native, but hidden states and their gradients travel by zip, for whose
// sizes no host waits (zip::Exchange::kBounded). Numbers of a tensor with more escapes than there
// is room for are wrong.
MakeCommunicators WithBoundedZip(MakeCommunicators make);

}  // namespace longhaul::worker::testing
