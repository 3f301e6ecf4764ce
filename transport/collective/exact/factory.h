// Sums in fp32 over a communicator whose own sums round 16-bit numbers at every hop, such as
// NCCL's with more than two ranks.
//
//   LH_ASSIGN_OR_RETURN(auto exact, exact::Create(native, &device, {}));
//
//   all-reduce      every rank sends each other rank its numbers of that rank's part; each rank
//                   sums its own part in fp32 in the order of ranks and rounds once; an all-gather
//                   of the sums. With n ranks and N bytes a rank sends 2 N (n - 1) / n bytes, as
//                   many as a ring that rounds at every hop. A ring in fp32 would send twice as
//                   many, and one all-gather of the inputs n / 2 times as many. Two ranks, and
//                   ranks with up to 8 KiB, do gather the inputs: one exchange instead of two.
//   reduce-scatter  the first exchange and the sum: N (n - 1) / n bytes
//
// All ranks get the same bits, those of `host` and `mapped`. Sums of fp32, fp16 and bf16; maxima
// and all other calls go to the communicator below. After Prepare, calls on a device do not block
// the host, so CUDA graphs can record them if they can record those of the communicator below.
#pragma once

#include <memory>

#include "absl/time/time.h"
#include "base/cuda/device.h"
#include "transport/collective/communicator.h"

namespace longhaul::collective::exact {

struct Options {
  // Longest time that a call on a device may block its caller, for example while buffers grow; then
  // the group ends. No buffer grows after Prepare.
  absl::Duration call_limit = absl::Minutes(5);
};

// `device`: the device of `below`; null: host memory. `below` must not be null. kInvalidArgument:
// `below` has another device.
StatusOr<std::unique_ptr<Communicator>> Create(std::shared_ptr<Communicator> below,
                                               const cuda::Device* device, const Options& options);

}  // namespace longhaul::collective::exact
