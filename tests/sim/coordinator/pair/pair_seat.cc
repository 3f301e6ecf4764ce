#include "tests/sim/coordinator/pair/pair_seat.h"

#include <algorithm>
#include <utility>

#include "base/overloaded.h"
#include "tests/sim/coordinator/pair/pair_times.h"

namespace longhaul::coordinator::sim {

PairSeat::PairSeat(PairWorld* pair, Place place, bool first) : pair_(pair), place_(place) {
  disk_.record.seat = place == kA ? "A" : "B";
  if (first) disk_.record.in_sync = {disk_.record.seat};
  disk_.led = first;
  shell_ = std::make_unique<SimCoordinator>(
      pair->world, pair->checkers, pair->options,
      SeatHooks{.commit =
                    [this](std::vector<coordinator::Write> writes, std::function<void()> then) {
                      Write(std::move(writes), /*sets_witness=*/false, std::move(then));
                    },
                .admits = [this](const v1::Hello& hello) { return Admits(hello); },
                .committed = [this] { return committed_; },
                .die = [this](bool silent) { Crash(silent); },
                .first_number = place == kA ? uint64_t{1'000'000'000} : uint64_t{2'000'000'000}});
}

void PairSeat::Connect(SendToOther to_other, SendToWitness to_witness,
                       std::function<bool()> reaches_witness) {
  reaches_witness_ = std::move(reaches_witness);
  to_other_ = std::move(to_other);
  to_witness_ = std::move(to_witness);
}

// ---- The process -------------------------------------------------------------------

void PairSeat::Start() {
  if (running()) return;
  ++process_;
  mode_ = Mode::kStarts;
  takes_witness_ = false;
  frozen_until_ = MonoTime();
  seat_ = std::make_unique<Seat>(disk_.record);
  timeline().Note("{} starts: term {}, {} changes, {} applied, in sync: {}", name(),
                  disk_.record.term, disk_.log.size(), disk_.applied, disk_.record.in_sync.size());
  Later(random().Between(absl::ZeroDuration(), kLook), [this] { Tick(); });
  if (!disk_.led || !seat_->alone()) return Follow();
  // The other one may have been elected since.
  to_other_({.body = pair_message::AskTerm()});
  Later(kAskLimit, [this] {
    if (mode_ == Mode::kStarts) LeadBy(std::nullopt);
  });
}

void PairSeat::Crash(bool power) {
  if (running()) {
    timeline().Note("{} dies{}", name(), power ? " with its machine" : "");
    pair_->Blame(timeline().now());
    if (!power && stream_ != 0) to_other_({.stream = stream_, .body = pair_message::Bye()});
    if (!power && follower_) to_other_({.stream = follower_->stream, .body = pair_message::Bye()});
  }
  ++process_;
  mode_ = Mode::kDown;
  shell_->Crash(power);
  seat_.reset();
  todo_.clear();
  inbox_.clear();
  busy_ = false;
  stream_ = 0;
  follower_.reset();
  under_way_.reset();
  waiting_.clear();
  if (!power) return;
  if (disk_.synced < disk_.applied) {
    timeline().Note("{} loses changes behind {}", name(), disk_.synced);
    pair_->Lost(disk_.synced, disk_.log);
  }
  disk_.LosePower();
}

void PairSeat::BeginAnew(const std::string& why) {
  timeline().Note("{} begins anew: {}", name(), why);
  Crash(/*power=*/false);
  timeline().After(absl::Seconds(1), [this, process = process_] {
    if (process == process_) Start();
  });
}

void PairSeat::Freeze(absl::Duration length, bool clock_too) {
  if (!running() || IsFrozen()) return;
  timeline().Note("{} {} for {}", name(), clock_too ? "is paused" : "is stopped",
                  absl::FormatDuration(length));
  frozen_until_ = timeline().now() + length;
  pair_->Blame(frozen_until_);
  shell_->Stall(length);
  if (!clock_too) return;
  lost_time_ += length;
  shell_->LoseTime(length);
}

void PairSeat::StallDisk(absl::Duration length) {
  timeline().Note("{}'s disk stalls for {}", name(), absl::FormatDuration(length));
  stalled_until_ = std::max(stalled_until_, timeline().now() + length);
  pair_->Blame(stalled_until_);
}

void PairSeat::FillDisk(absl::Duration length) {
  timeline().Note("{}'s disk is full for {}", name(), absl::FormatDuration(length));
  full_until_ = std::max(full_until_, timeline().now() + length);
  pair_->Blame(full_until_);
}

void PairSeat::LoseOther() {
  stream_ = 0;
  follows_ = false;
  if (!follower_) return;
  follower_.reset();
  if (std::exchange(live_, false)) follower_left_ = LocalNow();
}

void PairSeat::Heal() {
  // A stop and a stalled call still last their time.
  full_until_ = MonoTime();
  Start();
}

MonoTime PairSeat::LocalNow() const {
  return timeline().now() + -lost_time_;
}

void PairSeat::Later(absl::Duration delay, std::function<void()> action) {
  timeline().After(delay, [this, process = process_, action = std::move(action)] {
    if (!running() || process != process_) return;
    if (IsFrozen()) {
      Later(frozen_until_ - timeline().now(), action);
    } else {
      action();
    }
  });
}

void PairSeat::OnDisk(std::function<void()> action, std::function<void()> full) {
  const absl::Duration stall = std::max(absl::ZeroDuration(), stalled_until_ - timeline().now());
  const absl::Duration write = random().Between(absl::Microseconds(50), absl::Milliseconds(3));
  Later(stall + write, [this, action = std::move(action), full = std::move(full)] {
    if (stalled_until_ > timeline().now()) return OnDisk(action, full);
    if (full_until_ > timeline().now()) return full();
    const bool dies = random().Chance(pair_->lead.faults.crash_at_write);
    const bool before = random().Chance(0.5);
    if (dies && before) return Crash(/*power=*/random().Chance(0.3));
    const uint64_t process = process_;
    action();
    if (dies && process == process_) Crash(/*power=*/random().Chance(0.3));
  });
}

Tenure PairSeat::NewTenure() {
  return Tenure(fmt::format("{}{:<15}", name(), ++pair_->last_tenure));
}

void PairSeat::Tick() {
  Later(kLook, [this] { Tick(); });
  if (!todo_.empty()) return;
  if (mode_ == Mode::kFollows) TickAsFollower();
  if (mode_ == Mode::kLeads) TickAsLeader();
}

std::string PairSeat::Describe() const {
  if (!running()) return "does not run";
  return fmt::format("term {}, {}{}{}, {} in sync, change {}, {} applied", term(),
                     mode_ == Mode::kStarts    ? "starts"
                     : mode_ == Mode::kFollows ? "follows"
                                               : "leads",
                     acts() ? " and acts" : "", acts() && !sure() ? " and is not sure" : "",
                     seat_->record().in_sync.size(), disk_.log.size(), disk_.applied);
}

// ---- Messages ----------------------------------------------------------------------

void PairSeat::Receive(const pair_message::Message& message) {
  if (!running()) return;
  Later(absl::ZeroDuration(), [this, message] {
    if (std::holds_alternative<pair_message::AskTerm>(message.body)) {
      to_other_({.body = pair_message::TermIs{acts() ? term() : 0}});
      return;
    }
    inbox_.push_back([this, message] { Handle(message); });
    HandleInbox();
  });
}

void PairSeat::HearWitness(const witness::Record& record, bool hello) {
  if (!running()) return;
  Later(absl::ZeroDuration(), [this, record, hello] {
    inbox_.push_back([this, record, hello] { OnWitness(record, hello); });
    HandleInbox();
  });
}

void PairSeat::HandleInbox() {
  const uint64_t process = process_;
  while (process == process_ && !inbox_.empty() && todo_.empty() && !busy_) {
    const auto next = std::move(inbox_.front());
    inbox_.pop_front();
    next();
  }
}

void PairSeat::Handle(const pair_message::Message& message) {
  if (const auto* there = std::get_if<pair_message::TermIs>(&message.body)) {
    if (mode_ != Mode::kStarts) return;
    if (there->term > disk_.record.term) return Follow();
    return LeadBy(std::nullopt);
  }
  if (const auto* vote = std::get_if<pair_message::Vote>(&message.body)) return OnVote(vote->vote);
  if (const auto* voted = std::get_if<pair_message::Voted>(&message.body)) {
    if (mode_ != Mode::kFollows) return;
    if (voted->voted.granted) pair_->Saw("the other seat elects");
    seat_->OnSeat(voted->voted);
    return Carry();
  }
  const bool from_follower = std::holds_alternative<pair_message::Hello>(message.body) ||
                             std::holds_alternative<pair_message::Logged>(message.body) ||
                             (follower_ && message.stream == follower_->stream);
  if (!from_follower) {
    if (mode_ == Mode::kFollows) TakeStream(message);
  } else if (acts()) {
    TakeFollower(message);
  } else if (std::holds_alternative<pair_message::Hello>(message.body)) {
    to_other_({.stream = message.stream, .number = 1, .body = pair_message::Bye()});
  }
}

void PairSeat::OnWitness(const witness::Record& record, bool hello) {
  if (mode_ == Mode::kFollows) {
    // Only the witness that the records name has a vote.
    if (!HasWitness()) return;
    takes_witness_ = true;
    witness_heard_ = LocalNow();
    witness_seat_ = record.seat;
    seat_->OnWitness(record);
    if (!hello) witness_refuses_ = !seat_->leads();
    Carry();
    if (mode_ == Mode::kFollows && todo_.empty()) Campaign();
    return;
  }
  if (!acts()) return;
  if (!has_witness_) {
    if (hello && record.in_sync.empty()) adopts_witness_ = true;
    return;
  }
  const uint64_t process = process_;
  takes_witness_ = true;
  witness_heard_ = LocalNow();
  introduce_ = record.in_sync.empty();
  if (hello) {
    witness_agrees_ = false;
    witness_asked_ = MonoTime();
  }
  if (introduce_) return;
  seat_->OnWitness(record);
  Carry();
  if (process != process_) return;
  if (!hello) {
    witness_agrees_ = record.term == seat_->record().term && record.tenure == seat_->tenure() &&
                      record.in_sync == seat_->record().in_sync;
  }
  LookAtChange();
}

bool PairSeat::HasWitness() const {
  for (uint64_t i = 0; i < disk_.applied; ++i) {
    if (pair_->ChangeOf(disk_.log[i].history).sets_witness) return true;
  }
  return false;
}

// ---- Effects -----------------------------------------------------------------------

void PairSeat::Carry() {
  for (Effect& effect : seat_->TakeEffects()) todo_.push_back(std::move(effect));
  if (carries_) return;
  carries_ = true;
  const uint64_t process = process_;
  while (!todo_.empty()) {
    // Whoever waits for the disk here holds the lock that all others need.
    if (std::holds_alternative<effect::Store>(todo_.front()) && stalled_until_ > timeline().now()) {
      carries_ = false;
      Later(stalled_until_ - timeline().now(), [this] {
        Carry();
        HandleInbox();
      });
      return;
    }
    const Effect effect = std::move(todo_.front());
    todo_.pop_front();
    CarryOne(effect);
    if (process != process_) {
      carries_ = false;
      return;
    }
    for (Effect& more : seat_->TakeEffects()) todo_.push_back(std::move(more));
  }
  carries_ = false;
  if (mode_ == Mode::kFollows && seat_->leads() && seat_->alone() && written_ && !elected_) {
    elected_ = true;
    ServeWhenElected();
  }
}

void PairSeat::ServeWhenElected() {
  Later(random().Between(absl::Milliseconds(50), absl::Milliseconds(300)), [this] {
    if (busy_ || !todo_.empty()) return ServeWhenElected();
    LeadBy(*seat_);
  });
}

void PairSeat::StoreRecord() {
  if (full_until_ > timeline().now()) {
    written_ = false;
    // Nothing that was said may be forgotten.
    if (mode_ == Mode::kLeads) BeginAnew("its record cannot be stored");
    return;
  }
  const bool dies = random().Chance(pair_->lead.faults.crash_at_write);
  if (dies && random().Chance(0.5)) return Crash(/*power=*/random().Chance(0.3));
  disk_.record = seat_->record();
  if (mode_ == Mode::kLeads) disk_.led = seat_->leads();
  if (mode_ == Mode::kFollows && seat_->gave_way()) disk_.led = false;
  // It leads by this record if its process ends before it serves.
  if (mode_ == Mode::kFollows && seat_->leads() && seat_->alone()) disk_.led = true;
  written_ = true;
  if (dies) Crash(/*power=*/random().Chance(0.3));
}

void PairSeat::CarryOne(const Effect& effect) {
  if (std::holds_alternative<effect::Store>(effect)) return StoreRecord();
  if (mode_ == Mode::kFollows) {
    if (const auto* ask = std::get_if<effect::AskWitness>(&effect)) {
      // The term for which it asks has to be stored.
      if (written_ && reaches_witness_()) to_witness_(ask->request);
    } else if (const auto* say = std::get_if<effect::Say>(&effect)) {
      // Neither a request nor a vote counts before it is stored.
      if (!written_) return;
      if (const auto* vote = std::get_if<seat_message::Vote>(&say->message)) {
        to_other_({.body = pair_message::Vote{*vote}});
      } else if (const auto* voted = std::get_if<seat_message::Voted>(&say->message)) {
        if (voted->granted) heard_ = LocalNow();
        to_other_({.body = pair_message::Voted{*voted}});
      }
    } else if (std::holds_alternative<effect::Lead>(effect)) {
      timeline().Note("{} is elected with term {}", name(), seat_->record().term);
      pair_->Saw("a follower is elected");
      EndStream();
      asked_ = MonoTime();  // what it needs next may be asked at once
    }
    return;
  }
  std::visit(Overloaded{[&](const effect::AskWitness& ask) {
                          if (has_witness_ && reaches_witness_()) to_witness_(ask.request);
                        },
                        [&](const effect::Send&) {
                          if (follower_) SendDown(pair_message::Change{ChainUnderWay()});
                        },
                        [&](const effect::Commit&) {
                          under_way_->secured = true;
                          under_way_->secured_at = LocalNow();
                        },
                        [&](const effect::StepDown& down) {
                          pair_->Saw("a leader stepped down");
                          BeginAnew(fmt::format("another one leads with term {}", down.term));
                        },
                        [](const auto&) {}},
             effect);
}

}  // namespace longhaul::coordinator::sim
