#include "worker/pipeline/trace_log.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "base/machine.h"

namespace longhaul::worker {
namespace {

int64_t SinceBegin(MonoTime time) {
  return time.nanoseconds();
}

}  // namespace

void TraceLog::Add(const Entry& entry) {
  const std::lock_guard lock(mutex_);
  const auto ended = std::ranges::find(steps_, entry.step, &Recorded::step);
  if (ended != steps_.end() && entry.step != Step(0)) {
    if (spans_ < kMostSpans) {
      ended->entries.push_back(entry);
      ++spans_;
    }
    return;
  }
  if (current_.size() < kMostSpans) current_.push_back(entry);
}

void TraceLog::EndStep(Step step, MonoTime begin, MonoTime end) {
  const std::lock_guard lock(mutex_);
  const auto later = std::stable_partition(
      current_.begin(), current_.end(), [&](const Entry& entry) { return !(step < entry.step); });
  std::vector<Entry> next(later, current_.end());
  current_.erase(later, current_.end());
  spans_ += current_.size();
  steps_.push_back({step, begin, end, std::exchange(current_, std::move(next))});
  while (steps_.size() > kSteps || (spans_ > kMostSpans && steps_.size() > 1)) {
    spans_ -= steps_.front().entries.size();
    steps_.pop_front();
  }
}

v1::StageTrace TraceLog::Take(uint32_t steps) const {
  v1::StageTrace trace;
  trace.set_clock_id(MachineId());
  const std::lock_guard lock(mutex_);
  const size_t count = steps == 0 ? steps_.size() : std::min<size_t>(steps, steps_.size());
  for (size_t i = steps_.size() - count; i < steps_.size(); ++i) {
    const Recorded& recorded = steps_[i];
    v1::StepTrace& out = *trace.add_steps();
    out.set_step(recorded.step.value());
    out.set_begin_ns(SinceBegin(recorded.begin));
    out.set_end_ns(SinceBegin(recorded.end));
    for (const Entry& entry : recorded.entries) {
      v1::Span& span = *out.add_spans();
      span.set_kind(entry.kind);
      span.set_microbatch(entry.slice.microbatch.value());
      span.set_slice(entry.slice.index);
      span.set_up(entry.up);
      span.set_begin_ns(SinceBegin(entry.begin) - SinceBegin(recorded.begin));
      span.set_length_ns(SinceBegin(entry.end) - SinceBegin(entry.begin));
      span.set_bytes(entry.bytes);
    }
  }
  return trace;
}

}  // namespace longhaul::worker
