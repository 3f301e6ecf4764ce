// The state of one cell, which is a stage of one replica, in a run's present epoch (attempt). Plain
// data with two small state machines: the stage's progress, and the contact between its worker and
// the coordinator. Private to coordinator/state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/words.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

// The progress of a stage in its epoch.
enum class StagePhase : uint8_t {
  kPreparing,  // builds its model, fetches shards and opens links
  kReady,      // can start
  kTraining,
  kFinished,  // ended after the last step of the run
  kStopped,   // ended before the last step, because it was told to stop
};
constexpr std::string_view ToString(StagePhase phase) {
  return WordOf(phase, {"preparing", "ready", "training", "finished", "stopped"});
}

// The contact between a stage's worker and the coordinator.
enum class Presence : uint8_t {
  kAway,      // no session: the stage has ended or is lost, or its run recovers
  kAttached,  // the worker has a session
  // No session, but the stage is not lost yet: it continues to train without the coordinator, and
  // keeps its cell for a while (Detachment).
  kDetached,
};
constexpr std::string_view ToString(Presence presence) {
  return WordOf(presence, {"away", "attached", "detached"});
}

enum class StageTrigger : uint8_t {
  kSaidReady,
  kSaidStarted,  // or reported a step
  kSaidFinished,
  kSaidStopped,
  kForgotten,  // its worker came back without the stage
  kEpochEnded,
  kSessionBegan,
  kSessionEnded,
  kCoordinatorRestarted,  // no worker has come back yet
  kLost,                  // its worker is gone, or waiting for it has ended
};
constexpr std::string_view ToString(StageTrigger trigger) {
  return WordOf(trigger,
                {"said ready", "said started", "said finished", "said stopped", "forgotten",
                 "epoch ended", "session began", "session ended", "coordinator restarted", "lost"});
}

// One row of a table of state changes. If the table has no row for a state and a trigger, the
// trigger is ignored in this state.
template <class T>
struct StageTransition {
  T from, to;
  StageTrigger trigger;
  std::string_view why;
};
std::span<const StageTransition<StagePhase>> PhaseTransitions();
std::span<const StageTransition<Presence>> PresenceTransitions();
// Mermaid state diagrams of the tables.
std::string DumpPhases();
std::string DumpPresences();

// Why and for how long a detached stage keeps its cell.
struct Detachment {
  std::string why;
  MonoTime since;
  MonoTime until;           // end of the wait, unless the stage is found dead before
  bool by_restart = false;  // the coordinator restarted, and the worker is not back yet
};

struct StageRecord {
  CellId id;
  size_t place = 0;  // index in Run::stages, which has the order of the assignment's cells
  bool is_first = false, is_last = false;  // in the order in which activations pass the stages
  WorkerId worker;
  Incarnation incarnation;  // process of the worker that has the stage
  std::string name;         // name of the worker
  StagePhase phase = StagePhase::kPreparing;
  Presence presence = Presence::kAway;
  std::optional<Detachment> detached;  // set if the presence is kDetached
  uint64_t finished_step = 0;          // last step of a finished or stopped stage; else 0

  bool IsReady() const { return phase != StagePhase::kPreparing; }
  bool HasStarted() const { return phase >= StagePhase::kTraining; }
  bool HasFinished() const { return phase >= StagePhase::kFinished; }
  bool IsAttached() const { return presence == Presence::kAttached; }

  // The only functions that change phase and presence. False: the trigger is ignored now.
  bool MovePhase(StageTrigger trigger);
  bool MovePresence(StageTrigger trigger);
  // Moves the presence to kDetached, unless the trigger is ignored now.
  void Detach(StageTrigger trigger, Detachment detachment);
};

// Returns the stages of a new epoch, in the order of its cells. No worker has reported yet.
std::vector<StageRecord> StagesOf(const Assignment& assignment);

}  // namespace longhaul::coordinator
