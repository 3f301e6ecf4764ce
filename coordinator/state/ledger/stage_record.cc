#include "coordinator/state/ledger/stage_record.h"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace longhaul::coordinator {
namespace {

using Phase = StagePhase;
using enum StageTrigger;

constexpr std::string_view kNextEpoch = "the next epoch prepares its stages anew";
constexpr std::string_view kIsBack = "its worker may be told again what it missed";

constexpr std::array kPhases = {
    // clang-format off
    StageTransition<Phase>{Phase::kPreparing, Phase::kReady, kSaidReady, "the run starts when every stage is ready"},
    StageTransition<Phase>{Phase::kReady, Phase::kPreparing, kForgotten, "a worker that has lost its stage gets the assignment again"},
    StageTransition<Phase>{Phase::kReady, Phase::kTraining, kSaidStarted, "the word to start need not be repeated"},
    StageTransition<Phase>{Phase::kReady, Phase::kFinished, kSaidFinished, "a run of no steps, or one whose reports were lost"},
    StageTransition<Phase>{Phase::kReady, Phase::kStopped, kSaidStopped, "a run that is stopped before its first step"},
    StageTransition<Phase>{Phase::kTraining, Phase::kFinished, kSaidFinished, "the run is done when every stage has finished"},
    StageTransition<Phase>{Phase::kTraining, Phase::kStopped, kSaidStopped, "the run is stopped, or goes on with other replicas, when every stage has ended"},
    StageTransition<Phase>{Phase::kPreparing, Phase::kPreparing, kEpochEnded, kNextEpoch},
    StageTransition<Phase>{Phase::kReady, Phase::kPreparing, kEpochEnded, kNextEpoch},
    StageTransition<Phase>{Phase::kTraining, Phase::kPreparing, kEpochEnded, kNextEpoch},
    StageTransition<Phase>{Phase::kFinished, Phase::kPreparing, kEpochEnded, kNextEpoch},
    StageTransition<Phase>{Phase::kStopped, Phase::kPreparing, kEpochEnded, kNextEpoch},
    // clang-format on
};

constexpr std::array kPresences = {
    // clang-format off
    StageTransition<Presence>{Presence::kAway, Presence::kAttached, kSessionBegan, kIsBack},
    StageTransition<Presence>{Presence::kDetached, Presence::kAttached, kSessionBegan, kIsBack},
    StageTransition<Presence>{Presence::kAttached, Presence::kAttached, kSessionBegan, "a newer session took the place of the old one"},
    StageTransition<Presence>{Presence::kAttached, Presence::kDetached, kSessionEnded, "training goes on without the coordinator"},
    StageTransition<Presence>{Presence::kAway, Presence::kDetached, kCoordinatorRestarted, "workers need time to dial again"},
    StageTransition<Presence>{Presence::kAttached, Presence::kAway, kLost, "nobody waits for it"},
    StageTransition<Presence>{Presence::kDetached, Presence::kAway, kLost, "nobody waits for it any more"},
    // clang-format on
};

template <class T>
bool Move(std::span<const StageTransition<T>> table, StageTrigger trigger, T* state) {
  for (const StageTransition<T>& row : table) {
    if (row.from != *state || row.trigger != trigger) continue;
    *state = row.to;
    return true;
  }
  return false;
}

template <class T>
std::string Dump(std::span<const StageTransition<T>> table, T first) {
  std::string text = fmt::format("stateDiagram-v2\n  [*] --> {}\n", ToString(first));
  for (const StageTransition<T>& row : table) {
    text += fmt::format("  {} --> {} : {}\n    %% {}\n", ToString(row.from), ToString(row.to),
                        ToString(row.trigger), row.why);
  }
  return text;
}

}  // namespace

std::span<const StageTransition<StagePhase>> PhaseTransitions() {
  return kPhases;
}

std::span<const StageTransition<Presence>> PresenceTransitions() {
  return kPresences;
}

std::string DumpPhases() {
  return Dump(PhaseTransitions(), StagePhase::kPreparing);
}

std::string DumpPresences() {
  return Dump(PresenceTransitions(), Presence::kAway);
}

bool StageRecord::MovePhase(StageTrigger trigger) {
  return Move(PhaseTransitions(), trigger, &phase);
}

bool StageRecord::MovePresence(StageTrigger trigger) {
  const bool moved = Move(PresenceTransitions(), trigger, &presence);
  if (presence != Presence::kDetached) detached.reset();
  return moved;
}

void StageRecord::Detach(StageTrigger trigger, Detachment detachment) {
  if (MovePresence(trigger)) detached = std::move(detachment);
}

std::vector<StageRecord> StagesOf(const Assignment& assignment) {
  std::vector<StageRecord> stages;
  for (const Cell& cell : assignment.cells) {
    StageRecord& stage = stages.emplace_back();
    stage.id = cell.id;
    stage.place = stages.size() - 1;
    stage.is_first = assignment.Incoming(cell.id, EdgeKind::kActivations) == nullptr;
    stage.is_last = assignment.Outgoing(cell.id, EdgeKind::kActivations) == nullptr;
    stage.worker = cell.worker;
    stage.incarnation = cell.incarnation;
    stage.name = cell.worker_name;
  }
  return stages;
}

}  // namespace longhaul::coordinator
