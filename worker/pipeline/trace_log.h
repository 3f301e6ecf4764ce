// What a stage did when, over its last steps, for `longhaul trace`. Always on: an entry costs less
// than a microsecond and 48 bytes.
//
// Thread-safe. Times are of this machine's monotonic clock.
#ifndef LONGHAUL_WORKER_PIPELINE_TRACE_LOG_H_
#define LONGHAUL_WORKER_PIPELINE_TRACE_LOG_H_

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
  // Of all steps together; of a step with more the first ones are kept.
  static constexpr size_t kMostSpans = 16'000;

  struct Entry {
    v1::Span::Kind kind = v1::Span::UNKNOWN;
    // That it belongs to, where that may be another than the step under way: a neighbour that is
    // through with that sends for the next, and what is sent last may be coded behind the step's
    // end. 0: the step in which it ends.
    Step step{0};
    Slice slice;
    bool up = false;  // as of v1::Span
    MonoTime begin, end;
    uint64_t bytes = 0;
  };
  void Add(const Entry& entry);
  // The step under way has taken from `begin` to `end`; what comes next belongs to the following.
  void EndStep(Step step, MonoTime begin, MonoTime end);

  // The last `steps` (0: all) that have ended, oldest first.
  v1::StageTrace Take(uint32_t steps) const;

 private:
  struct Recorded {
    Step step{0};
    MonoTime begin, end;
    std::vector<Entry> entries;
  };
  mutable std::mutex mutex_;
  std::vector<Entry> current_;  // of the step under way, or later ones
  std::deque<Recorded> steps_;
  size_t spans_ = 0;  // in steps_
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_PIPELINE_TRACE_LOG_H_
