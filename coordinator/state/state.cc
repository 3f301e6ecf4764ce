#include "coordinator/state/state.h"

#include <utility>

#include "coordinator/state/core.h"

namespace longhaul::coordinator {

std::string_view ToString(RunState state) {
  switch (state) {
    case RunState::kQueued:
      return "queued";
    case RunState::kPlanning:
      return "planning";
    case RunState::kPreparing:
      return "preparing";
    case RunState::kRunning:
      return "running";
    case RunState::kFinishing:
      return "finishing";
    case RunState::kDone:
      return "done";
    case RunState::kStopped:
      return "stopped";
    case RunState::kFailed:
      return "failed";
    case RunState::kRecovering:
      return "recovering";
  }
  return "?";
}

bool HasEnded(RunState state) {
  return state == RunState::kDone || state == RunState::kStopped || state == RunState::kFailed;
}

struct State::Impl {
  Core core;
};

State::State(const StateOptions& options, StoredRuns stored, uint64_t next_event_sequence,
             MonoTime now)
    : impl_(new Impl{Core(options, std::move(stored), next_event_sequence, now)}) {}

State::~State() = default;

TickResult State::Tick(std::vector<Event> events, MonoTime now, int64_t unix_ms) {
  return impl_->core.Tick(std::move(events), now, unix_ms);
}

std::vector<v1::RunStatus> State::Runs(int64_t ended_since_unix_ms) const {
  return impl_->core.Runs(ended_since_unix_ms);
}

StatusOr<v1::RunStatus> State::Run(std::string_view id_or_name) const {
  return impl_->core.RunOf(id_or_name);
}

std::vector<v1::WorkerStatus> State::Workers(MonoTime now) const {
  return impl_->core.Workers(now);
}

std::vector<v1::MeasuredLink> State::Links(MonoTime now) const {
  return impl_->core.Links(now);
}

std::vector<v1::RelayStatus> State::Relays() const {
  return impl_->core.Relays();
}

bool State::ExpectsCopy(const std::string& sha256, uint64_t bytes,
                        const std::optional<WorkerId>& from) const {
  return impl_->core.ExpectsCopy(sha256, bytes, from);
}

bool State::HasCopyFor(const WorkerId& from, const std::string& sha256) const {
  return impl_->core.HasCopyFor(from, sha256);
}

Naming State::NamedForWorker(const WorkerId& worker, const std::string& sha256) const {
  return impl_->core.NamedForWorker(worker, sha256);
}

OwnNames State::NamesOfOwner(std::string_view owner) const {
  return impl_->core.NamesOfOwner(owner);
}

Naming State::NamedForOwner(std::string_view owner, const std::string& sha256) const {
  return impl_->core.NamedForOwner(owner, sha256);
}

const FaultCounts& State::faults() const {
  return impl_->core.faults();
}

uint64_t State::sequence() const {
  return impl_->core.sequence();
}

}  // namespace longhaul::coordinator
