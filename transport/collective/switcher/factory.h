// One communicator out of several: a native one and alternatives to it, of which each call takes
// the one that is predicted to be fastest (ZipCCL, Equations 6 and 7).
//
//   LH_ASSIGN_OR_RETURN(auto switcher, switcher::Create(member, native, {{"zip", zipped}}, &device,
//                                                       {.cache_folder = folder}, deadline));
//
// When it is made, a probe times some sizes of each operation with all of them in turns. Of that
// T(d) = a + b d is fitted for each, d being the bytes of the call's largest tensor. A call then
// costs a comparison with a threshold more than without a switcher. An alternative is taken where
// it is predicted to be `margin` faster than the native one, and never below the sizes at which the
// probe saw it lose.
//
// The time of an alternative that compresses depends on its ratio r: b = b_code + b_wire / r. r is
// measured in the calls made (Communicator::stats), operation by operation. Every `agree_every`
// calls of an alternative the ranks tell each other (Member::Tell, in the order of calls) and set
// thresholds anew. One that has not been taken for long gets the probe's ratio back, so that better
// data bring it back.
//
// All ranks choose alike: all numbers are those of all ranks, and the slowest rank counts. The
// parts of an AllToAllV differ between ranks, so it is chosen by what the calls before it moved,
// and is native until the ranks have agreed on that for the first time.
//
// Alternatives are taken for sums, gathers and all-to-alls of `dtypes`; the rest is native. One
// that loses something (taco) is only there if the caller put it there, and then an operation's
// numbers depend on its size.
#ifndef LONGHAUL_TRANSPORT_COLLECTIVE_SWITCHER_FACTORY_H_
#define LONGHAUL_TRANSPORT_COLLECTIVE_SWITCHER_FACTORY_H_

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
  std::string name;  // with its options: a part of the cache's key
  std::shared_ptr<Communicator> communicator;
};

struct Options {
  std::vector<Dtype> dtypes = {Dtype::kBf16};
  // Of the native time; below 0 an alternative may be predicted slower.
  double margin = 0.05;
  // Calls are recorded in graphs: ranks never agree anew, so ratios stay the probe's.
  bool recorded = false;
  uint64_t agree_every = 256;
  // What the probe takes at most; large sizes are left out where time does not suffice.
  absl::Duration probe_limit = absl::Seconds(1);
  // Where probes are kept, a file for each machine and set of options; empty: nowhere.
  std::string cache_folder;
  bool reprobe = false;  // do not read what is kept
};

// What is known of one communicator in one operation.
struct Line {
  std::string name;
  double start_seconds = 0;     // a
  double seconds_per_byte = 0;  // b, at the ratio below
  double ratio = 1;             // uncompressed over sent
  uint64_t calls = 0, bytes = 0;
};
// From `bytes` on, `line` is taken.
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
  // On the thread that makes the calls.
  virtual std::vector<Decision> decisions() const = 0;
  // What the probe's numbers are of: "probed in 0.62 s", "read from <file>".
  virtual std::string origin() const = 0;
};
// For people: of each operation what is taken from which size on, and why.
std::string ToText(const std::vector<Decision>& decisions);

// `device`: that of all communicators, null for host memory. All ranks call it with the same
// alternatives and options. Not while a graph is recorded. A cache that cannot be read or written
// is a line in the log.
StatusOr<std::unique_ptr<Switcher>> Create(std::shared_ptr<Member> member,
                                           std::shared_ptr<Communicator> native,
                                           std::vector<Alternative> alternatives,
                                           const cuda::Device* device, const Options& options,
                                           Deadline deadline);

}  // namespace longhaul::collective::switcher

#endif  // LONGHAUL_TRANSPORT_COLLECTIVE_SWITCHER_FACTORY_H_
