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
  RunSpec spec;  // the run file that it measured them for
  v1::LayerTimes times;
  MonoTime at;
};

// A worker that has sent a hello since the coordinator started. It is kept for a while after it
// left.
struct Worker {
  WorkerId id;
  Incarnation incarnation;
  v1::Hello hello;
  std::optional<SessionId> session;  // nullopt: not connected
  uint64_t sessions = 0;             // sessions begun since the record was made
  MonoTime last_heard;
  uint64_t memory_used_bytes = 0;
  v1::Resident resident;  // without a run: none
  // The run, or the request to plan one, that reserves the worker. A worker serves one at a time.
  std::optional<RunId> held;
  std::optional<MeasuredLayers> layers;  // by this incarnation
  // The run whose layers it was asked in this session to time, as a spare of that run.
  std::optional<RunId> times_for;
  absl::Duration clock_ahead;        // compared with the coordinator's clock, when it joined
  std::deque<Incarnation> replaced;  // older incarnations, which newer ones followed
  bool restarts = false;  // it reported that its process ends and another incarnation follows
  v1::AtHand at_hand;     // from its newest heartbeat; without a run: nothing
};

// By name in natural order, then by id.
struct NameLess {
  bool operator()(const Worker* a, const Worker* b) const;
};

// The workers of an epoch's cells: replica by replica, stage by stage. Null: no worker.
using Crew = std::vector<Worker*>;
bool IsWhole(const Crew& crew);

// Workers for a run.
struct Candidates {
  std::vector<Worker*> workers;  // in pipeline order
  // Set: `workers` are sorted by name, and the plan takes this many of them, for all replicas, in
  // an order that it chooses.
  std::optional<uint32_t> choose;
};

}  // namespace longhaul::coordinator
