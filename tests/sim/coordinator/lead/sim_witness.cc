#include "tests/sim/coordinator/lead/sim_witness.h"

#include <variant>

#include "tests/sim/coordinator/lead/sim_seat.h"

namespace longhaul::coordinator::lead_sim {
namespace {

// How long the number of the newest change may be in memory alone.
constexpr absl::Duration kSeenInMemory = absl::Seconds(10);

}  // namespace

void SimWitness::Receive(const witness::Request& request,
                         const std::function<void(const witness::Record&)>& answer) {
  const MonoTime now = world_->timeline.now();
  if (away_until_ > now) return;
  const witness::Record before = record_;
  // To wait for a lease is for calm alone.
  const bool is_heard = now - heard_leader_ < kLease && world_->faults.hasty == 0;
  const witness::Decision decision = witness::Decide(request, is_heard, &record_);
  if (const auto* beat = std::get_if<witness::Beat>(&request)) {
    if (decision.granted && beat->term == record_.term) heard_leader_ = now;
  }
  if (decision.granted && std::holds_alternative<witness::Elect>(request)) {
    heard_leader_ = now;
    if (!(before == record_)) {
      world_->timeline.Note("the witness elects {} with term {}", record_.seat, record_.term);
      ++world_->seen["the witness elects"];
    }
  }
  if (!(before.in_sync == record_.in_sync)) {
    world_->timeline.Note("the witness notes {} seats in sync in term {}", record_.in_sync.size(),
                          record_.term);
    if (record_.in_sync.size() < before.in_sync.size()) {
      ++world_->seen["the witness agrees that one is alone"];
    }
  }
  // It stores before it answers, except the number of the newest change.
  witness::Record without_seen = record_;
  without_seen.seen = file_.seen;
  if (without_seen == file_ && now - seen_stored_ < kSeenInMemory) {
    answer(record_);
    return;
  }
  world_->timeline.After(world_->random.Between(absl::Microseconds(50), absl::Milliseconds(3)),
                         [this, answer, process = process_] {
                           if (process != process_) return;
                           seen_stored_ = world_->timeline.now();
                           file_ = record_;
                           answer(record_);
                         });
}

void SimWitness::Crash(absl::Duration away) {
  world_->timeline.Note("the witness dies for {}", absl::FormatDuration(away));
  ++process_;
  record_ = file_;
  heard_leader_ = MonoTime();
  away_until_ = world_->timeline.now() + away;
}

void SimWitness::Freeze(absl::Duration length) {
  world_->timeline.Note("the witness is away for {}", absl::FormatDuration(length));
  away_until_ = std::max(away_until_, world_->timeline.now() + length);
}

}  // namespace longhaul::coordinator::lead_sim
