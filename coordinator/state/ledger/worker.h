// The state machine's record of a worker. Plain data; private to coordinator/state.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/ids.h"
#include "coordinator/state/ids.h"
#include "longhaul/v1/worker.pb.h"
#include "run/file/run_spec.h"

namespace longhaul::coordinator {

// The layer times of a worker's newest measurement.
struct MeasuredLayers {
  RunSpec spec;  // the run file whose layers were timed
  v1::LayerTimes times;
  MonoTime at;
};

// A worker that has connected since the coordinator started. Its record is kept for a while after
// the worker has left.
struct Worker {
  WorkerId id;
  Incarnation incarnation;           // newest process of the worker
  v1::Hello hello;                   // first message of the newest session
  std::optional<SessionId> session;  // nullopt: not connected
  uint64_t sessions = 0;             // sessions begun since the record was made
  MonoTime last_heard;
  uint64_t memory_used_bytes = 0;
  // The stage that the worker keeps in memory after an epoch (attempt) has ended; no run: none.
  v1::Resident resident;
  // The one run, or request to plan a run, that reserves the worker. nullopt: it is free.
  std::optional<RunId> held;
  std::optional<MeasuredLayers> layers;  // measured by this incarnation
  // The run that has the worker as a spare, and in this session has asked it to time layers.
  std::optional<RunId> times_for;
  absl::Duration clock_ahead;  // the worker's wall clock minus the coordinator's, at its hello
  std::deque<Incarnation> replaced;  // older incarnations; their processes are refused
  bool restarts = false;  // the worker reported that its process ends and a new one follows
  // Set: the worker is leaving (v1::Leaving). Its process ends by then.
  std::optional<MonoTime> leaves_at;
  bool may_leave = false;  // a leaving worker was told that nobody needs it
  v1::AtHand at_hand;      // what the stage does, by the newest heartbeat; no run: nothing
};

// Orders by name in natural order, then by id.
struct NameLess {
  bool operator()(const Worker* a, const Worker* b) const;
};

// The workers for the cells of an epoch. A cell is one stage of one replica. Cells are in the order
// of their replicas, then of their stages. A null element: the cell has no worker.
using Crew = std::vector<Worker*>;
// Returns whether every cell has a worker.
bool IsWhole(const Crew& crew);

// Workers with which a run can be planned.
struct Candidates {
  // In pipeline order (planning/pipeline_order.h), unless `choose` is set. Not null.
  std::vector<Worker*> workers;
  // Set: `workers` are sorted by name. The plan chooses this many of them, for all replicas
  // together, and their order. If pipeline.replicas is auto, the plan may choose fewer.
  std::optional<uint32_t> choose;
};

}  // namespace longhaul::coordinator
