// Collectives that compress bf16 without loss (ZipCCL, Sections 3 to 5), over any communicator.
//
//   LH_ASSIGN_OR_RETURN(auto zipped, zip::Create(native, &device, {}));
//
// bf16 tensors travel as blobs of the codec `zip`, and all bits are restored. Other dtypes, maxima,
// broadcasts and barriers go to the communicator below. A blob is at most 64 bytes larger than its
// elements. An escape is an element whose exponent does not fit its 3-bit code.
//
//   all-gather      encode, gather blobs padded to the longest, decode
//   all-to-all      encode a blob for each peer, exchange, decode
//   reduce-scatter  all-to-all, then sums in fp32 in the order of ranks, rounded once
//   all-reduce      reduce-scatter, then all-gather; the same bits on all ranks
//
// The size of a blob is known only on the device, after encoding. But NCCL needs sizes on the host.
// Options::exchange says how blobs travel:
//
//   kSizesFirst   (design 1) sizes travel first; the host waits for them, then sends blobs
//   kStaticFirst  (design 2) the first message has a fixed size: the part of the blob without
//                 escapes, the blob's size, and room for usual escapes (`escape_share`; the paper
//                 has no such room). Meanwhile the host waits for the sizes, then sends what did
//                 not fit. So ranks that are ready early start to move data. If a blob of an
//                 all-gather did not fit, the gather is repeated with enough room, and the next
//                 all-gather sends sizes first.
//   kBounded      only that first message travels, and the host waits for no sizes: for CUDA
//                 graphs. A blob with more escapes is cut. On ranks that received a cut blob Wait
//                 then returns kOutOfRange; repeat all calls since the last Wait in another way.
//
// If the communicator below takes lengths from the device (Communicator::blobs), it carries whole
// blobs: the host waits for no sizes, nothing is cut, `exchange` and `escape_share` are ignored.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/time/time.h"
#include "base/cuda/device.h"
#include "transport/collective/communicator.h"

namespace longhaul::collective::zip {

enum class Exchange : uint8_t { kSizesFirst, kStaticFirst, kBounded };

struct Options {
  Exchange exchange = Exchange::kStaticFirst;
  // A large call is cut into pieces, so that one is coded while another travels. A piece has up to
  // this many elements of each peer's part. 0: the call is one piece.
  uint64_t piece_elements = 0;
  // For kStaticFirst and kBounded: room for escapes, as a share of the elements. In normally
  // distributed numbers 2.5 % are escapes.
  double escape_share = 0.05;
  // Longest time that a call may block its caller, for example to wait for sizes or to get more
  // memory; then the group ends.
  absl::Duration call_limit = absl::Minutes(5);
};

// `device`: the device of `below`; null: host memory. All ranks use the same options.
// `below` must not be null. kInvalidArgument: `escape_share` is not from 0 to 1, or `below` has
// another device.
StatusOr<std::unique_ptr<Communicator>> Create(std::shared_ptr<Communicator> below,
                                               const cuda::Device* device, const Options& options);

}  // namespace longhaul::collective::zip
