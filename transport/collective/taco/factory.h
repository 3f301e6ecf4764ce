// Collectives with 8-bit codes (TACO, Section 4), over any communicator.
//
//   LH_ASSIGN_OR_RETURN(auto compressed, taco::Create(native, &device, {}));
//
// Lossy: tensors travel as codes of the codec `taco`, about half of bf16's bytes.
//
//   all-reduce      two shots: every rank encodes the others' parts; the owner of a part sums in
//                   fp32 in the order of ranks, its own numbers uncoded, and encodes the sum once,
//                   which all decode. The same bits on all ranks.
//                   Two ranks need one shot: both gather both codes and sum the decoded numbers.
//                   This takes as many bytes, one exchange fewer, and nothing is encoded twice.
//   reduce-scatter  the first shot; the sum is rounded to the dtype, not encoded
//   all-gather      encode, exchange, decode; this rank's part as well, so all ranks agree
//
// With more than two ranks a number is encoded twice in an all-reduce, however many ranks there
// are. Works for fp32, fp16 and bf16. Maxima, all-to-all, broadcasts and barriers go to the
// communicator below. The host never blocks, so CUDA graphs can record calls.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/time/time.h"
#include "base/cuda/device.h"
#include "codec/taco/format.h"
#include "transport/collective/communicator.h"

namespace longhaul::collective::taco {

using codec::taco::Format;

struct Options {
  Format format = Format::kE4m3;
  uint32_t block = 256;  // elements that share a scale: 32, 64, 128, 256 or 512
  // Elements of each part that are coded while others travel; 0: all at once.
  uint64_t piece_elements = 0;
  // Longest time that a device call may block its caller; after that the group ends.
  absl::Duration call_limit = absl::Minutes(5);
};

// `device`: of `below`; null: host memory. All ranks use the same options.
StatusOr<std::unique_ptr<Communicator>> Create(std::shared_ptr<Communicator> below,
                                               const cuda::Device* device, const Options& options);

}  // namespace longhaul::collective::taco
