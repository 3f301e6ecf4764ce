// Sums and gathers in 8-bit codes (TACO, Section 4), over any communicator.
//
//   LH_ASSIGN_OR_RETURN(auto compressed, taco::Create(native, &device, {}));
//
// Lossy: what travels are codes of the codec `taco`, about half of bf16's bytes.
//
//   all-reduce      two shots: every rank encodes the others' parts; the owner of a part sums in
//                   fp32 in the order of ranks, its own numbers uncoded, and encodes the sum once;
//                   all decode that. The same bits on all ranks.
//                   Of two ranks one shot: both gather both codes, and sum what they decode to. As
//                   many bytes, one exchange less, and nothing is encoded twice.
//   reduce-scatter  the first shot; the sum is rounded to the dtype, not encoded
//   all-gather      encode, exchange, decode; this rank's part, too, so all ranks have the same
//
// So a number is encoded twice in an all-reduce, whatever the number of ranks above two. fp32, fp16
// and bf16 alike. Maxima, all-to-all, broadcasts and barriers go to the communicator below as they
// are. Nothing waits for the host: calls may be recorded in graphs.
#ifndef LONGHAUL_TRANSPORT_COLLECTIVE_TACO_FACTORY_H_
#define LONGHAUL_TRANSPORT_COLLECTIVE_TACO_FACTORY_H_

#include <cstdint>
#include <memory>

#include "absl/time/time.h"
#include "base/cuda/device.h"
#include "transport/collective/communicator.h"

namespace longhaul::collective::taco {

enum class Format : uint8_t { kE4m3, kE5m2, kInt8 };

struct Options {
  Format format = Format::kE4m3;
  uint32_t block = 256;  // elements with a scale: 32, 64, 128, 256 or 512
  // Elements of each part that are coded while others travel; 0: all at once.
  uint64_t piece_elements = 0;
  // What a call on a device may hold up its caller; then it ends the group.
  absl::Duration call_limit = absl::Minutes(5);
};

// `device`: that of `below`, null for host memory. All ranks with the same options.
StatusOr<std::unique_ptr<Communicator>> Create(std::shared_ptr<Communicator> below,
                                               const cuda::Device* device, const Options& options);

}  // namespace longhaul::collective::taco

#endif  // LONGHAUL_TRANSPORT_COLLECTIVE_TACO_FACTORY_H_
