// A communicator that chooses, for each call, the fastest of a native communicator and its
// alternatives by predicted time (ZipCCL, Equations 6 and 7).
//
//   LH_ASSIGN_OR_RETURN(auto switcher, switcher::Create(member, native, {{"zip", zipped}}, &device,
//                                                       {.cache_folder = folder}, deadline));
//
// On creation a probe times some sizes of each operation with all of them in turn, and fits T(d) =
// a + b d for each, where d is the bytes of the call's largest tensor. A call then only costs a
// comparison with a threshold. An alternative is chosen where it is predicted to be `margin` faster
// than the native one, and never below the sizes at which the probe saw it lose.
//
// The time of a compressing alternative depends on its ratio r: b = b_code + b_wire / r. The calls
// made measure r for each operation (Communicator::stats). Every `agree_every` calls of an
// alternative the ranks exchange it (Member::Tell, in the order of calls) and compute new
// thresholds. An alternative that was not chosen for a long time gets the probe's ratio back, so
// that it can win again when the data change.
//
// All ranks choose alike, from the numbers of all ranks; the slowest rank counts. The parts of an
// AllToAllV differ between ranks, so its choice depends on the bytes of earlier calls, and is
// native until the ranks first agree on them.
//
// Alternatives serve sums, gathers and all-to-alls of `dtypes`; all other calls are native. If the
// caller adds a lossy alternative (taco), an operation's numbers depend on its size.
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
  std::string name;  // with its options: part of the cache's key
  std::shared_ptr<Communicator> communicator;
};

struct Options {
  std::vector<Dtype> dtypes = {Dtype::kBf16};
  // Fraction of the native time. Negative: an alternative may be predicted slower.
  double margin = 0.05;
  // Calls are recorded in CUDA graphs: ranks never agree again, so ratios stay the probe's.
  bool recorded = false;
  uint64_t agree_every = 256;
  // Time limit of the probe; large sizes are left out if time runs out.
  absl::Duration probe_limit = absl::Seconds(1);
  // Folder of probes, one file for each machine and set of options. Empty: probes are not stored.
  std::string cache_folder;
  bool reprobe = false;  // ignore stored probes
};

// The measured speed of one communicator for one operation.
struct Line {
  std::string name;
  double start_seconds = 0;     // a
  double seconds_per_byte = 0;  // b, at the ratio below
  double ratio = 1;             // uncompressed size by sent size
  uint64_t calls = 0, bytes = 0;
};
// `line` is chosen from `bytes` on.
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
  // Call it on the thread that makes the collective calls.
  virtual std::vector<Decision> decisions() const = 0;
  // Tells where the numbers come from: "probed in 0.62 s", "read from <file>".
  virtual std::string origin() const = 0;
};
// For people: the communicator chosen for each operation and size, and why.
std::string ToText(const std::vector<Decision>& decisions);

// `device`: of all communicators; null: host memory. All ranks call it with the same alternatives
// and options, not while a graph is recorded. An unreadable or unwritable cache is only logged.
StatusOr<std::unique_ptr<Switcher>> Create(std::shared_ptr<Member> member,
                                           std::shared_ptr<Communicator> native,
                                           std::vector<Alternative> alternatives,
                                           const cuda::Device* device, const Options& options,
                                           Deadline deadline);

}  // namespace longhaul::collective::switcher
