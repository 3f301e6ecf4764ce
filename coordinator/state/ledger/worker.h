// What the state machine knows of a worker. Plain data; private to coordinator/state.
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

// How long a worker's layers took when it measured them last.
struct MeasuredLayers {
  RunSpec spec;  // the run file that it measured them for
  v1::LayerTimes times;
  MonoTime at;
};

// A worker that has said hello since the coordinator started. It is kept for a while after it left.
struct Worker {
  WorkerId id;
  Incarnation incarnation;
  v1::Hello hello;
  std::optional<SessionId> session;  // nullopt: not connected
  uint64_t sessions = 0;             // begun since the worker is known
  MonoTime last_heard;
  uint64_t memory_used_bytes = 0;
  v1::Resident resident;  // without a run: none
  // The run, or the request to plan one, that it is reserved for. A worker serves one at a time.
  std::optional<RunId> held;
  std::optional<MeasuredLayers> layers;  // by this incarnation
  std::optional<RunId> times_for;        // asked in this session to time the layers as its spare
  absl::Duration clock_ahead;            // compared with the coordinator's clock, when it joined
  std::deque<Incarnation> replaced;      // older incarnations, which newer ones followed
  bool restarts = false;  // it has said that its process ends, and another incarnation comes
  v1::AtHand at_hand;     // as its newest heartbeat says; without a run: nothing
};

// By name, as people count, then by id.
struct NameLess {
  bool operator()(const Worker* a, const Worker* b) const;
};

// Who has the cells of an epoch: replica by replica, stage by stage. Null: nobody is there.
using Crew = std::vector<Worker*>;
bool IsWhole(const Crew& crew);

// Workers for a run.
struct Candidates {
  std::vector<Worker*> workers;  // in pipeline order
  // Set: `workers` are by name, and the plan takes this many of them, for all replicas, in an order
  // of its own.
  std::optional<uint32_t> choose;
};

}  // namespace longhaul::coordinator
