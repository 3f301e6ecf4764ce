// A group's time without its sums: what its ranks compute takes so long alone.
#ifndef LONGHAUL_TESTS_BENCH_WORKER_NO_SUMS_H_
#define LONGHAUL_TESTS_BENCH_WORKER_NO_SUMS_H_

#include "worker/stage/group/communicators.h"

namespace longhaul::worker::testing {

// As `make`, but hidden states and their gradients are copied where ranks would sum or gather them:
// every rank goes on with its own part. Numbers are wrong; kernels and sizes are not. GPUs alone.
MakeCommunicators WithoutSums(MakeCommunicators make);

}  // namespace longhaul::worker::testing

#endif  // LONGHAUL_TESTS_BENCH_WORKER_NO_SUMS_H_
