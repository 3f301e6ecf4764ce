// Collectives that compress bf16 without loss (ZipCCL, Sections 3 to 5), over any communicator.
//
//   LH_ASSIGN_OR_RETURN(auto zipped, zip::Create(native, &device, {}));
//
// bf16 tensors travel as blobs of the codec `zip`, bit by bit exact. Other dtypes, maxima,
// broadcasts and barriers go to the communicator below. A blob is never larger than its elements
// plus 64 bytes.
//
//   all-gather      encode, gather blobs padded to the longest, decode
//   all-to-all      the same, with a blob for each peer
//   reduce-scatter  all-to-all, then sums in fp32 in the order of ranks, rounded once
//   all-reduce      reduce-scatter, then all-gather; the same bits on all ranks
//
// A blob's size is known on the device, once it is encoded. NCCL needs it on the host:
//
//   kSizesFirst   (design 1) sizes travel first; the host waits for them, then sends blobs
//   kStaticFirst  (design 2) the part whose size is known travels first, with the size of the
//                 whole and room for usual escapes (`escape_share`; the paper has none). The host
//                 waits for sizes meanwhile, then sends what did not fit. Ranks that are ready
//                 early start to move data. If a blob of an all-gather did not fit, the gather is
//                 repeated with room for it, and the next one sends sizes first.
//   kBounded      a fixed share of each blob travels and the host never waits: for CUDA graphs.
//                 A blob with more escapes is cut: Wait gives kOutOfRange on the ranks that needed
//                 it, and the calls since the last Wait must be repeated in another way.
//
// A communicator that takes lengths from the device (Communicator::blobs) carries whole blobs: the
// host never waits, nothing is cut, and `exchange` and `escape_share` are ignored.
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
  // Elements of each peer's part that are coded while others travel; 0: all at once.
  uint64_t piece_elements = 0;
  // kStaticFirst, kBounded: room for escapes, as a share of the elements. In normally distributed
  // numbers 2.5 % are escapes.
  double escape_share = 0.05;
  // Longest time that a call may block its caller; after that the group ends.
  absl::Duration call_limit = absl::Minutes(5);
};

// `device`: of `below`; null: host memory. All ranks use the same options.
StatusOr<std::unique_ptr<Communicator>> Create(std::shared_ptr<Communicator> below,
                                               const cuda::Device* device, const Options& options);

}  // namespace longhaul::collective::zip
