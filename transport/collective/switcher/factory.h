// A communicator that chooses, for each call, the fastest by predicted time: a native communicator
// or one of its alternatives, for example a compressing one (ZipCCL, Equations 6 and 7).
//
//   LH_ASSIGN_OR_RETURN(auto switcher, switcher::Create(member, native, {{"zip", zipped}}, &device,
//                                                       {.cache_folder = folder}, deadline));
//
// On creation a probe times some sizes of each operation with all communicators in turn. For each
// it fits T(d) = a + b d, where d is the bytes of the call's largest tensor. A later call then only
// compares its d with a threshold. An alternative is chosen if its predicted time x (1 + margin) is
// below the native time, and never for sizes at which the probe saw it lose.
//
// The time of a compressing alternative depends on its ratio r, uncompressed by sent bytes: the
// slope is b = b_code + b_wire / r. The calls made measure r for each operation
// (Communicator::stats). After every `agree_every` calls of an alternative the ranks exchange their
// measurements (Member::Tell, in the order of calls) and compute new thresholds. An alternative
// that was not chosen for a long time gets the probe's ratio back, so that it can win again when
// the data change.
//
// All ranks make the same choice, because they compute it from the numbers of all ranks; the
// slowest rank's times count. The parts of an AllToAllV differ between ranks. So its choice depends
// on the bytes of earlier calls, which the ranks agree on from time to time. Until they first do,
// AllToAllV is native.
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

struct Alternative {
  std::string name;  // names its options too, because it is part of the cache's key
  std::shared_ptr<Communicator> communicator;
};

struct Options {
  std::vector<Dtype> dtypes = {Dtype::kBf16};
  // How much faster an alternative must be, as a fraction of its own time. Negative: it may be
  // predicted slower than the native one.
  double margin = 0.05;
  // True if calls are recorded in CUDA graphs. Then the ranks never agree again: ratios stay the
  // probe's, and AllToAllV stays native.
  bool recorded = false;
  uint64_t agree_every = 256;
  // Time limit of the probe. If time runs out, large sizes are left out, but the two smallest are
  // always timed.
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
  uint64_t calls = 0, bytes = 0;  // made so far
};
// lines[line] is chosen for calls from `bytes` on, up to the next range.
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
  // The present choice for each operation and dtype. Call it on the thread that makes the
  // collective calls.
  virtual std::vector<Decision> decisions() const = 0;
  // Returns where the probe's numbers come from: "probed in 0.62 s", "read from <file>".
  virtual std::string origin() const = 0;
};
// Returns a text for people: the communicator chosen for each operation and size, and why.
std::string ToText(const std::vector<Decision>& decisions);

// `device`: the device of all communicators; null: host memory. All ranks call it with the same
// alternatives and options, and not while a graph is recorded. A cache that cannot be read or
// written is no error; it is logged.
StatusOr<std::unique_ptr<Switcher>> Create(std::shared_ptr<Member> member,
                                           std::shared_ptr<Communicator> native,
                                           std::vector<Alternative> alternatives,
                                           const cuda::Device* device, const Options& options,
                                           Deadline deadline);

}  // namespace longhaul::collective::switcher
