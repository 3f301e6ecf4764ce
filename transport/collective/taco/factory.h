// Collectives that send 8-bit codes (TACO, Section 4), over any communicator.
//
//   LH_ASSIGN_OR_RETURN(auto compressed, taco::Create(native, &device, {}));
//
// Lossy: tensors travel as codes of the codec `taco`, in about half of bf16's bytes. A rank's part
// of a tensor is the part that this rank sums.
//
//   all-reduce      two exchanges: every rank encodes the other ranks' parts and sends each to its
//                   rank; each rank sums its own part in fp32 in the order of ranks, its own
//                   numbers uncoded. Then it encodes the sum once and sends it to all; all ranks,
//                   itself included, take the decoded sum. So all have the same bits.
//                   Two ranks need one exchange: both send all their numbers as codes, and both
//                   sum all decoded numbers, their own too. This takes as many bytes, and nothing
//                   is encoded twice.
//   reduce-scatter  the first exchange; the sum is rounded to the dtype, not encoded
//   all-gather      encode, exchange, decode; a rank decodes its own part too, so that all agree
//
// With more than two ranks each number of an all-reduce is encoded twice, however many ranks there
// are: once before the sum and once in it. Works for fp32, fp16 and bf16. Maxima, all-to-all,
// broadcasts and barriers go to the communicator below. After Prepare, calls on a device do not
// block the host, so CUDA graphs can record them.
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
  // Elements of each part in one piece: one piece is coded while another travels. 0: one piece.
  uint64_t piece_elements = 0;
  // Longest time that a call on a device may block its caller, for example while buffers grow; then
  // the group ends. No buffer grows after Prepare.
  absl::Duration call_limit = absl::Minutes(5);
};

// `device`: the device of `below`; null: host memory. All ranks use the same options.
// `below` must not be null. kInvalidArgument: `block` is not allowed, or `below` has another
// device.
StatusOr<std::unique_ptr<Communicator>> Create(std::shared_ptr<Communicator> below,
                                               const cuda::Device* device, const Options& options);

}  // namespace longhaul::collective::taco
