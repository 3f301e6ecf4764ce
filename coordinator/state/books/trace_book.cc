#include "coordinator/state/books/trace_book.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "run/plan/proto/plan_proto.h"

namespace longhaul::coordinator {
namespace {

constexpr size_t kMostTraces = 4;  // at once
// What one reply may have, with room for the plan.
constexpr size_t kMostReplyBytes = 3 << 20;

// Fewer steps, the oldest first, until it fits; the last one is kept.
void Trim(v1::TraceReply* reply) {
  while (reply->ByteSizeLong() > kMostReplyBytes) {
    bool less = false;
    for (v1::StageTrace& stage : *reply->mutable_stages()) {
      if (stage.steps_size() < 2) continue;
      stage.mutable_steps()->DeleteSubrange(0, 1);
      less = true;
    }
    if (!less) return;
  }
}

}  // namespace

std::vector<CellId> Trace::Missing() const {
  std::vector<CellId> missing;
  for (const auto& [cell, trace] : cells) {
    if (!trace) missing.push_back(cell);
  }
  return missing;
}

v1::TraceReply Trace::Reply(const Plan& plan) && {
  v1::TraceReply reply;
  reply.set_run_id(run.value());
  for (auto& [cell, trace] : cells) {
    LH_CHECK(trace.has_value(), "{} has not said what it did", ToString(cell));
    *trace->mutable_cell() = ToProto(cell);  // whatever its worker calls it
    *reply.add_stages() = *std::move(trace);
  }
  *reply.mutable_plan() = ToProto(plan);
  Trim(&reply);
  return reply;
}

Status TraceBook::MayBegin() const {
  if (traces_.size() < kMostTraces) return absl::OkStatus();
  return ResourceExhausted("{} traces are being put together already; try again in a few seconds",
                           traces_.size());
}

uint64_t TraceBook::Begin(RequestId request, const RunId& run, Epoch epoch,
                          const std::vector<CellId>& cells, MonoTime now) {
  Trace& trace = traces_[next_];
  trace = {.request = request, .run = run, .epoch = epoch, .cells = {}, .until = now + kTraceLimit};
  for (const CellId& cell : cells) trace.cells[cell];
  return next_++;
}

const Trace* TraceBook::Find(uint64_t id) const {
  const auto found = traces_.find(id);
  return found == traces_.end() ? nullptr : &found->second;
}

bool TraceBook::Answer(uint64_t id, const CellId& cell, v1::StageTrace trace) {
  const auto found = traces_.find(id);
  if (found == traces_.end()) return false;
  const auto place = found->second.cells.find(cell);
  if (place == found->second.cells.end()) return false;
  place->second = std::move(trace);
  return found->second.Missing().empty();
}

Trace TraceBook::Take(uint64_t id) {
  auto node = traces_.extract(id);
  LH_CHECK(!node.empty(), "trace {} is not under way", id);
  return std::move(node.mapped());
}

std::vector<uint64_t> TraceBook::Late(MonoTime now) const {
  std::vector<uint64_t> late;
  for (const auto& [id, trace] : traces_) {
    if (now >= trace.until) late.push_back(id);
  }
  return late;
}

MonoTime TraceBook::NextWake() const {
  MonoTime wake = MonoTime::max();
  for (const auto& [id, trace] : traces_) wake = std::min(wake, trace.until);
  return wake;
}

}  // namespace longhaul::coordinator
