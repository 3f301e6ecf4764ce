// `longhaul trace`: collects from every cell of a run the times of its work, and joins the answers.
//
//   id = book.Begin(request, run, epoch, cells, now);  // and ask every cell
//   if (book.Answer(id, cell, answer)) reply with book.Take(id)
//   for (id : book.Late(now)) say who is missing, book.Take(id)
//
// Pure data; not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "coordinator/state/ids.h"
#include "longhaul/v1/control.pb.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

// Cells that have not answered after this time are missing.
inline constexpr absl::Duration kTraceLimit = absl::Seconds(10);

struct Trace {
  RequestId request;
  RunId run;
  Epoch epoch;
  std::map<CellId, std::optional<v1::StageTrace>> cells;  // nullopt: not answered yet
  MonoTime until;

  std::vector<CellId> Missing() const;
  // Returns the answers in the order of their cells, cut to the limit of one reply: the oldest
  // steps are dropped first, the last one of each cell stays. Leaves out missing cells.
  v1::TraceReply Reply(const Plan& plan) &&;
};

class TraceBook {
 public:
  // kResourceExhausted if too many traces are under way.
  Status MayBegin() const;
  uint64_t Begin(RequestId request, const RunId& run, Epoch epoch, const std::vector<CellId>& cells,
                 MonoTime now);
  // Returns the trace if it is still under way; null: it was answered or given up. Valid until the
  // book changes.
  const Trace* Find(uint64_t id) const;
  // Takes a cell's answer; the newest counts. True: no cell is missing any more.
  bool Answer(uint64_t id, const CellId& cell, v1::StageTrace trace);
  // Ends a trace that is under way, and returns it.
  Trace Take(uint64_t id);
  std::vector<uint64_t> Late(MonoTime now) const;
  // MonoTime::max(): never.
  MonoTime NextWake() const;

 private:
  std::map<uint64_t, Trace> traces_;
  uint64_t next_ = 1;
};

}  // namespace longhaul::coordinator
