// A communicator that makes each call with the communicator that is predicted to be the fastest: a
// native one, or an alternative, for example a compressing one (ZipCCL, Equations 6 and 7).
//
//   LH_ASSIGN_OR_RETURN(auto switcher, switcher::Create(member, native, {{"zip", zipped}}, &device,
//                                                       {.cache_folder = folder}, deadline));
//
// On creation a probe times some sizes of each operation with all communicators in turn. For each
// operation and communicator it fits T(d) = a + b d, where d is the bytes of the call's largest
// tensor. A later call then only compares its d with thresholds. An alternative is chosen if its
// predicted time x (1 + margin) is below the native time; but never for sizes at which the native
// communicator was faster in the probe.
//
// The time of a compressing alternative depends on its ratio r = uncompressed bytes / sent bytes:
// the slope is b = b_code + b_wire / r. Every call measures r for its operation
// (Communicator::stats). After every `agree_every` calls of an alternative the ranks exchange their
// measurements (Member::Tell) and compute new thresholds; this call blocks until all ranks make it.
// An alternative that was not chosen for a long time gets the probe's ratio back, so that it can
// win again when the data change.
//
// All ranks make the same choice, because all compute it from the same numbers: the slowest rank's
// times, and all ranks' ratios. The size of an AllToAllV differs between ranks. So its choice uses
// the size of earlier AllToAllV calls, which the ranks exchange together with their measurements.
// Before the first exchange AllToAllV is native.
//
// Alternatives serve sums, gathers and all-to-alls of `dtypes`; all other calls are native. With a
// lossy alternative (taco), the results of an operation depend on which communicator its size
// selects.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/cuda/device.h"
#include "transport/collective/communicator.h"
#include "transport/collective/member.h"

namespace longhaul::collective::switcher {

// At most 8 alternatives, with different names. `communicator` must not be null.
struct Alternative {
  std::string name;  // names its options too, because it is part of the cache's key
  std::shared_ptr<Communicator> communicator;
};

struct Options {
  std::vector<Dtype> dtypes = {Dtype::kBf16};
  // How much faster an alternative must be, as a fraction of its own time. Above -1. Negative: an
  // alternative is chosen even if it is predicted to be slower than the native one by this share.
  double margin = 0.05;
  // True if calls are recorded in CUDA graphs. Then the ranks exchange no measurements: ratios stay
  // the probe's, and AllToAllV stays native.
  bool recorded = false;
  uint64_t agree_every = 256;  // calls, at least 1
  // Time limit of the probe. Large sizes are left out if they would take longer, but the two
  // smallest sizes are always timed.
  absl::Duration probe_limit = absl::Seconds(1);
  // Folder of stored probes, with one file for each set of devices, communicators and options.
  // Empty: probes are not stored.
  std::string cache_folder;
  bool reprobe = false;  // ignore stored probes
};

// The measured speed of one communicator for one operation.
struct Line {
  std::string name;
  double start_seconds = 0;       // a
  double seconds_per_byte = 0;    // b, at the ratio below
  double ratio = 1;               // uncompressed bytes / sent bytes
  uint64_t calls = 0, bytes = 0;  // of the calls made so far; bytes of their largest tensors
};
// Decision::lines[line] makes the calls of at least `bytes`, up to the next range.
struct Range {
  uint64_t bytes = 0;
  size_t line = 0;  // 0: native
};
struct Decision {
  Op op = Op::kAllReduce;
  Dtype dtype = Dtype::kBf16;
  std::vector<Line> lines;    // the native one first
  std::vector<Range> ranges;  // ascending; the first begins at 0
};

class Switcher : public Communicator {
 public:
  // Returns the present choices for each operation and dtype. Call it on the thread that makes the
  // collective calls.
  virtual std::vector<Decision> decisions() const = 0;
  // Returns where the probe's numbers come from: "probed in 0.62 s", "read from <file>".
  virtual std::string origin() const = 0;
};
// Returns a text for people: the communicator chosen for each operation and size, and why.
std::string ToText(const std::vector<Decision>& decisions);

// Blocks until the probe is done on all ranks. All ranks call it with the same alternatives and
// options, and not while a graph is recorded. `device`: the device of all communicators; null: host
// memory. kInvalidArgument: wrong options, or communicators of different ranks or devices. If the
// file of a stored probe cannot be read or written, Create logs a warning and returns no error.
StatusOr<std::unique_ptr<Switcher>> Create(std::shared_ptr<Member> member,
                                           std::shared_ptr<Communicator> native,
                                           std::vector<Alternative> alternatives,
                                           const cuda::Device* device, const Options& options,
                                           Deadline deadline);

}  // namespace longhaul::collective::switcher
