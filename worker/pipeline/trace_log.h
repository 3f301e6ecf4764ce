// Records a stage's spans of work and waiting in its last steps, for `longhaul trace`. Always on:
// an entry costs less than a microsecond and 48 bytes.
//
// Thread-safe. Times are this machine's monotonic clock.
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
  static constexpr size_t kSteps = 8;
  // Maximum number of entries of all steps together. A longer step keeps its first entries.
  static constexpr size_t kMostSpans = 16'000;

  struct Entry {
    v1::Span::Kind kind = v1::Span::UNKNOWN;
    // The step that the entry belongs to, if that may differ from the current one: a neighbour that
    // is ahead already sends for the next step, and the last tensors may be coded after the step's
    // end. 0: the step in which the entry ends.
    Step step{0};
    Slice slice;
    bool up = false;  // as in v1::Span
    MonoTime begin, end;
    uint64_t bytes = 0;
  };
  void Add(const Entry& entry);
  // Ends the current step, which took from `begin` to `end`.
  void EndStep(Step step, MonoTime begin, MonoTime end);

  // The last `steps` ended steps (0: all), oldest first.
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
