// `longhaul trace`: collects from every cell of a run (a stage of one replica) the times of the
// cell's work, and joins the answers.
//
//   id = book.Begin(request, run, epoch, cells, now);  // and ask every cell
//   if (book.Answer(id, cell, answer)) reply with book.Take(id)
//   for (id : book.Late(now)) report the missing cells and book.Take(id)
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

// A trace is given up if cells have not answered after this time.
inline constexpr absl::Duration kTraceLimit = absl::Seconds(10);

struct Trace {
  RequestId request;
  RunId run;
  Epoch epoch;
  std::map<CellId, std::optional<v1::StageTrace>> cells;  // nullopt: not answered yet
  MonoTime until;

  // Returns the cells that have not answered.
  std::vector<CellId> Missing() const;
  // Returns the answers in the order of their cells. All cells must have answered. If the answers
  // are too large for one reply, drops steps, the oldest first; the last step of each cell stays.
  v1::TraceReply Reply(const Plan& plan) &&;
};

class TraceBook {
 public:
  // kResourceExhausted if four traces are under way.
  Status MayBegin() const;
  // Begins a trace and returns its number.
  uint64_t Begin(RequestId request, const RunId& run, Epoch epoch, const std::vector<CellId>& cells,
                 MonoTime now);
  // Null: there is no such trace under way. Valid until the book changes.
  const Trace* Find(uint64_t id) const;
  // Takes a cell's answer, in place of an earlier one. True: all cells have answered now. Ignores
  // answers that fit no trace under way.
  bool Answer(uint64_t id, const CellId& cell, v1::StageTrace trace);
  // Ends a trace and returns it. The trace must be under way.
  Trace Take(uint64_t id);
  // Returns the numbers of the traces whose time is over.
  std::vector<uint64_t> Late(MonoTime now) const;
  // Returns when the next trace is late; MonoTime::max(): never.
  MonoTime NextWake() const;

 private:
  std::map<uint64_t, Trace> traces_;
  uint64_t next_ = 1;
};

}  // namespace longhaul::coordinator
