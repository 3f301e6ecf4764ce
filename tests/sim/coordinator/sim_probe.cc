// The part of SimWorker that follows worker/measuring/link_probe.cc; and what must hold of a plan's
// rates.
#include <algorithm>
#include <utility>

#include "tests/sim/coordinator/sim_worker.h"

namespace longhaul::coordinator::sim {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(100);
// For so long after a fault nobody is surprised that something was not measured.
constexpr absl::Duration kProbeAftermath = absl::Seconds(120);

}  // namespace

void SimWorker::BeginProbe(const v1::WorkerCommand& command) {
  const v1::ProbeLink& ask = command.probe_link();
  Probe& probe = probe_.emplace();
  probe.command = command;
  probe.until = world_->timeline.now() + absl::Seconds(ask.limit_seconds());
  probe.takes = world_->random.Between(absl::Milliseconds(20), absl::Seconds(3));
  const auto peer = std::find_if(
      world_->frozen_until.begin(), world_->frozen_until.end(),
      [&, i = size_t{0}](const auto&) mutable { return WorkerName(i++) == ask.peer_name(); });
  probe.peer = static_cast<size_t>(peer - world_->frozen_until.begin());
  // A lost machine, whose place this one took, is missed only after a while: it does not answer.
  const bool itself = probe.peer == index_ && world_->machines_lost[index_] == 0;
  if (probe.peer == world_->frozen_until.size() || itself) {
    world_->Violate("{} is to measure its link to {}", WorkerName(index_), ask.peer_name());
    return;
  }
  world_->probes[ProbeKey(command)].insert(index_);
  PollProbe(ask.probe());
}

void SimWorker::PollProbe(uint64_t number) {
  if (!probe_ || probe_->command.probe_link().probe() != number || probe_->answer) return;
  const v1::ProbeLink& ask = probe_->command.probe_link();
  const bool open = world_->probes[ProbeKey(probe_->command)].size() == 2 &&
                    world_->CanTalk(index_, probe_->peer) &&
                    (!ask.dial() || (ask.addresses_size() == 1 &&
                                     ask.addresses(0) == world_->AddressOf(probe_->peer)));
  if (open) probe_->takes = probe_->takes - kPoll;
  v1::WorkerMessage message;
  v1::LinkProbed& answer = *message.mutable_link_probed();
  answer.set_probe(number);
  if (probe_->cancelled || world_->timeline.now() >= probe_->until) {
    answer.set_problem("it was not measured in time");
  } else if (open && probe_->takes <= absl::ZeroDuration()) {
    if (world_->random.Chance(world_->faults.error)) {
      world_->Blame(index_);
      answer.set_problem("the link broke");
    } else {
      if (!ask.round_trips_only()) {
        answer.set_goodput_bits_per_second(RateOf(KeyOf(probe_->command), probe_->peer, index_));
      }
      answer.set_round_trip_seconds(0.01);
    }
  } else {
    After(kPoll, [this, number] { PollProbe(number); });
    return;
  }
  probe_->answer = message;
  Say(KeyOf(probe_->command), std::move(message));
  TakeNext();
}

void SimWorker::CancelProbe() {
  if (probe_) probe_->cancelled = true;
}

// One link of a plan at a time on a worker's interface.
void SimWorker::CheckProbe(const v1::WorkerCommand& command) {
  if (!probe_ || probe_->answer || probe_->command.run_id() != command.run_id() ||
      probe_->command.epoch() != command.epoch() || WasInTroubleLately(index_) ||
      WasInTroubleLately(probe_->peer)) {
    return;
  }
  world_->Violate("{} is to measure the link to {} of {}@{} beside that to {}", WorkerName(index_),
                  command.probe_link().peer_name(), command.run_id(), command.epoch(),
                  probe_->command.probe_link().peer_name());
}

bool SimWorker::WasInTroubleLately(size_t worker) const {
  for (const std::string& name : {WorkerName(worker), std::string("coordinator")}) {
    const auto fault = world_->fault_of.find(name);
    if (fault != world_->fault_of.end() &&
        world_->timeline.now() - fault->second < kProbeAftermath) {
      return true;
    }
  }
  const auto moved = world_->moved_at.find(worker);
  return moved != world_->moved_at.end() &&
         world_->timeline.now() - moved->second < kProbeAftermath;
}

// A plan counts with what its own workers have measured for it, and with all of that.
void SimWorker::CheckRates(const EpochKey& key, const Assignment& assignment) {
  const auto worker_of = [&](const CellId& cell) {
    return world_->IndexOf(assignment.Find(cell)->worker.value());
  };
  // An epoch that takes the place of another one has its plan, but where a worker was replaced: of
  // its links it knows what was measured between these two before, or nothing.
  const bool is_planned = std::ranges::any_of(world_->probes, [&](const auto& probe) {
    return std::get<0>(probe.first) == key.run && std::get<1>(probe.first) == key.epoch;
  });
  const auto was_measured = [&](double planned, size_t from, size_t to) {
    for (const auto& [probe, ends] : world_->probes) {
      if (planned == RateOf({std::get<0>(probe), std::get<1>(probe)}, from, to)) return true;
    }
    return false;
  };
  for (const Edge& edge : assignment.edges) {
    const size_t upper = worker_of(edge.from), lower = worker_of(edge.to);
    for (const auto& [planned, from, to] :
         {std::tuple(edge.forward.bits_per_second, upper, lower),
          std::tuple(edge.backward.bits_per_second, lower, upper)}) {
      const double measured = RateOf(key, from, to);
      const bool excused =
          is_planned ? planned == 0 && (WasInTroubleLately(upper) || WasInTroubleLately(lower))
                     : planned == 0 || was_measured(planned, from, to);
      if (planned == measured || excused) continue;
      world_->Violate("{}@{} is planned with {} bit/s over edge {}; {} were measured", key.run,
                      key.epoch, planned, edge.id.value(), measured);
    }
  }
}

}  // namespace longhaul::coordinator::sim
