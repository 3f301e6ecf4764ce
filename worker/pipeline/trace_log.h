// Records when a stage worked and waited in its last steps, for `longhaul trace`. Always on: an
// entry costs less than a microsecond and 56 bytes.
//
// Thread-safe. Times are of this machine's monotonic clock.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "longhaul/v1/worker.pb.h"

namespace longhaul::worker {

class TraceLog {
 public:
  static constexpr size_t kSteps = 8;  // number of ended steps that are kept
  // Maximum number of entries of all ended steps together. If there are more, the oldest steps are
  // dropped. A single step with more entries keeps its first ones.
  static constexpr size_t kMostSpans = 16'000;

  struct Entry {
    v1::Span::Kind kind = v1::Span::UNKNOWN;
    // The step that the entry belongs to; 0: the current step. Entries of links and codecs name
    // their step: a neighbour that is ahead already sends for the next step, and the last tensors
    // of a step may be encoded or decoded after the step's end.
    Step step{0};
    Slice slice;      // not used for the optimizer and for waits
    bool up = false;  // for links and codecs: true: a tensor to or from the previous stage
    MonoTime begin, end;
    uint64_t bytes = 0;  // length of the encoded tensor for RECEIVE, else 0
  };
  void Add(const Entry& entry);
  // Ends the current step. `begin` and `end`: when it began and ended.
  void EndStep(Step step, MonoTime begin, MonoTime end);

  // Returns a copy of the last `steps` ended steps, oldest first; 0: all that are kept.
  v1::StageTrace Take(uint32_t steps) const;

 private:
  struct Recorded {
    Step step{0};
    MonoTime begin, end;
    std::vector<Entry> entries;
  };
  mutable std::mutex mutex_;
  std::vector<Entry> current_;  // of the current step, or of later ones
  std::deque<Recorded> steps_;
  size_t spans_ = 0;  // in steps_
};

}  // namespace longhaul::worker
