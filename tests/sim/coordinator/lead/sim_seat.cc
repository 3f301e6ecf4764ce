#include "tests/sim/coordinator/lead/sim_seat.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/overloaded.h"

namespace longhaul::coordinator::lead_sim {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(500);
constexpr absl::Duration kBeat = absl::Seconds(2);
constexpr absl::Duration kPatience = absl::Seconds(3);  // with a follower, before it is left behind
constexpr absl::Duration kAnswerIn = absl::Seconds(4);  // a client's call
constexpr absl::Duration kHandOver = absl::Seconds(3);  // how long a leader waits for a vote
constexpr size_t kKept = 12;  // a leader keeps so many changes for a follower that comes back

bool NeedsDisk(const Effect& effect) {
  return std::holds_alternative<effect::Store>(effect) ||
         std::holds_alternative<effect::Commit>(effect) ||
         std::holds_alternative<effect::Log>(effect) ||
         std::holds_alternative<effect::CutTail>(effect) ||
         std::holds_alternative<effect::Apply>(effect);
}

}  // namespace

SimSeat::SimSeat(World* world, Place place, bool first) : world_(world), place_(place) {
  disk_.record.seat = place == kA ? "A" : "B";
  if (first) disk_.record.in_sync = {disk_.record.seat};
  disk_.led = first;
  blocking_ = world->random.Chance(0.5);
}

void SimSeat::Connect(SendToSeat to_other, SendToWitness to_witness) {
  to_other_ = std::move(to_other);
  to_witness_ = std::move(to_witness);
}

// ---- The process -------------------------------------------------------------------

void SimSeat::Start() {
  if (running()) return;
  ++process_;
  seat_ = std::make_unique<Seat>(disk_.record, disk_.Applied(), disk_.Tail());
  world_->timeline.Note("{} starts: term {}, {} changes, {} applied, in sync: {}", name(),
                        disk_.record.term, disk_.log.size(), disk_.applied,
                        disk_.record.in_sync.size());
  frozen_until_ = MonoTime();
  began_ = heard_leader_ = LocalNow();
  heard_other_ = heard_witness_ = asked_at_ = shrunk_at_ = MonoTime();
  asked_ = 0;
  witness_agrees_ = false;
  hands_over_.reset();
  Later(world_->random.Between(absl::ZeroDuration(), kTick), [this] { Tick(); });
}

void SimSeat::Crash(bool power) {
  if (running()) {
    world_->timeline.Note("{} dies{}", name(), power ? " with its machine" : "");
    AnswerProposal(Answer::kUnknown);
  }
  ++process_;
  seat_.reset();
  acts_ = busy_ = false;
  proposal_.reset();
  inbox_.clear();
  todo_.clear();
  copy_.reset();
  if (!power) return;
  if (disk_.synced < disk_.applied) {
    world_->timeline.Note("{} loses changes behind {}", name(), disk_.synced);
    ++world_->seen["unsynced changes lost"];
    world_->checker.LostUnsynced(disk_.synced);
  }
  disk_.LosePower();
}

void SimSeat::Freeze(absl::Duration length, bool clock_too) {
  if (!running() || IsFrozen()) return;
  world_->timeline.Note("{} {} for {}", name(), clock_too ? "is paused" : "is stopped",
                        absl::FormatDuration(length));
  frozen_until_ = world_->timeline.now() + length;
  if (clock_too) lost_time_ += length;
}

void SimSeat::StallDisk(absl::Duration length) {
  world_->timeline.Note("{}'s disk stalls for {}", name(), absl::FormatDuration(length));
  stalled_until_ = std::max(stalled_until_, world_->timeline.now() + length);
}

void SimSeat::FillDisk(absl::Duration length) {
  world_->timeline.Note("{}'s disk is full for {}", name(), absl::FormatDuration(length));
  full_until_ = std::max(full_until_, world_->timeline.now() + length);
}

void SimSeat::PutBack(const SeatDisk& image) {
  Crash(/*power=*/true);
  disk_ = image;
  disk_.SyncAll();
}

void SimSeat::LoseOther() {
  if (running()) seat_->ForgetFollower();
}

void SimSeat::Heal() {
  stalled_until_ = full_until_ = frozen_until_ = MonoTime();
  Start();
}

MonoTime SimSeat::LocalNow() const {
  return world_->timeline.now() + -lost_time_;
}

void SimSeat::Later(absl::Duration delay, std::function<void()> action) {
  world_->timeline.After(delay, [this, process = process_, action = std::move(action)] {
    if (!running() || process != process_) return;
    if (IsFrozen()) {
      Later(frozen_until_ - world_->timeline.now(), action);
    } else {
      action();
    }
  });
}

Tenure SimSeat::NewTenure() {
  return Tenure(fmt::format("{}{}", name(), ++world_->last_tenure));
}

// ---- Time --------------------------------------------------------------------------

bool SimSeat::sure() const {
  if (!acts()) return false;
  if (seat_->alone()) return true;
  return LocalNow() - std::max(heard_other_, heard_witness_) < kLease;
}

void SimSeat::Tick() {
  Later(kTick, [this] { Tick(); });
  // A call has to be answered even where the disk is away.
  if (proposal_ && LocalNow() - proposal_->since > kAnswerIn && proposal_->ask) {
    proposal_->ask->answer(Answer::kUnknown);
    proposal_->ask.reset();
  }
  if (busy_) return;
  if (seat_->leads()) {
    TickAsLeader();
  } else {
    TickAsOther();
  }
  TakeEffects();
}

void SimSeat::TickAsLeader() {
  const MonoTime now = LocalNow();
  Random& random = world_->random;
  if (now - asked_at_ >= kBeat) {
    asked_at_ = now;
    to_witness_(witness::Beat{.term = seat_->record().term,
                              .tenure = seat_->tenure(),
                              .seat = name(),
                              .number = std::min(disk_.synced, disk_.applied)});
    if (!witness_agrees_ || random.Chance(0.2)) seat_->RemindWitness();
  }
  if (hands_over_ && now - *hands_over_ > kHandOver) {
    hands_over_.reset();
    seat_->KeepLead();
  }
  if (acts_ && random.Chance(world_->faults.hand_over * absl::ToDoubleSeconds(kTick))) {
    hands_over_ = now;
    seat_->HandOver();
    to_other_(HandOver{seat_->record().term});
  }
  if (acts_) {
    // Only a leader whose term has begun knows what is committed.
    to_witness_(seat_->Introduction());
  }
  // The newest change again, as a beat.
  SendRows(std::max<uint64_t>(1, disk_.applied) - 1);
  if (random.Chance(0.02)) seat_->ForgetFollower();
  if (random.Chance(world_->faults.told_alone * absl::ToDoubleSeconds(kTick))) seat_->Shrink();
  const bool waits = proposal_ && now - proposal_->since > kPatience;
  if (seat_->in_sync_of_two() && waits && now - shrunk_at_ > kPatience) {
    shrunk_at_ = now;
    seat_->Shrink();
  }
  if (acts_ && !seat_->in_sync_of_two() && now - heard_other_ < kLease) {
    if (seat_->Grow(place_ == kA ? "B" : "A")) ++world_->seen["both in sync again"];
  }
  // A change of the leader's own: a step of a run, for example.
  if (acts_ && sure() && !proposal_ && !hands_over_ && random.Chance(0.15))
    Propose({.important = false}, {});
}

void SimSeat::TickAsOther() {
  const MonoTime now = LocalNow();
  Random& random = world_->random;
  // Whoever led alone asks nobody, except a witness that counts: this record may be an old copy.
  const bool waits_for_witness =
      disk_.has_witness && heard_witness_ < began_ && now - began_ < kLease;
  if (disk_.led && seat_->alone() && waits_for_witness) {
    if (!seat_->is_candidate()) seat_->AskWitness(NewTenure());
    return;
  }
  const bool may_lead = disk_.led && seat_->alone();
  const bool hasty = random.Chance(world_->faults.hasty * absl::ToDoubleSeconds(kTick));
  if (!may_lead && !hasty &&
      now - std::max(heard_leader_, asked_at_) < kLease + random.Between({}, absl::Seconds(2))) {
    return;
  }
  if (now - asked_at_ < absl::Seconds(1)) return;
  asked_at_ = now;
  ++asked_;
  if (may_lead) {
    if (seat_->LeadAlone(NewTenure())) ++world_->seen["leads by its own record"];
  } else if (hasty ? random.Chance(0.5) : asked_ % 2 == 1) {
    seat_->AskWitness(NewTenure());
  } else if (!disk_.log.empty()) {
    seat_->AskOther(NewTenure());
  }
}

// ---- Messages ----------------------------------------------------------------------

void SimSeat::Receive(ToSeat message) {
  if (!running()) return;
  Later(absl::ZeroDuration(), [this, message = std::move(message)] {
    if (blocking_ && !todo_.empty()) {
      inbox_.push_back(message);
    } else {
      Handle(message);
    }
  });
}

void SimSeat::Handle(const ToSeat& message) {
  std::visit(Overloaded{
                 [this](const SeatMessage& said) {
                   heard_other_ = LocalNow();
                   voted_ = std::holds_alternative<seat_message::Voted>(said);
                   if (const auto* rows = std::get_if<seat_message::Rows>(&said)) {
                     if (!seat_->leads() && rows->term >= seat_->record().term) {
                       heard_leader_ = LocalNow();
                     }
                   }
                   seat_->OnSeat(said);
                 },
                 [this](const witness::Record& record) {
                   heard_witness_ = LocalNow();
                   if (!record.in_sync.empty()) disk_.has_witness = true;
                   voted_ = false;
                   seat_->OnWitness(record);
                   witness_agrees_ = record.term == seat_->record().term &&
                                     record.tenure == seat_->tenure() &&
                                     record.in_sync == seat_->record().in_sync;
                 },
                 [this](const Copy& copy) { TakeCopy(copy); },
                 [this](const HandOver& told) { OnHandOver(told); },
                 [this](const Ask& ask) { OnAsk(ask); },
             },
             message);
  TakeEffects();
}

void SimSeat::OnHandOver(const HandOver& told) {
  if (seat_->leads() || told.term < seat_->record().term) return;
  seat_->AskOther(NewTenure());
}

void SimSeat::OnAsk(const Ask& ask) {
  if (!acts_ || !sure() || proposal_ || hands_over_ || !todo_.empty()) {
    ask.answer(Answer::kRefused);
    return;
  }
  for (const Row& row : disk_.log) {
    if (world_->contents.at(row.history.chain).value != ask.value) continue;
    ++world_->seen["a repeated call was known"];
    ask.answer(Answer::kStored);
    return;
  }
  Propose({.value = ask.value}, ask);
}

void SimSeat::TakeCopy(const Copy& copy) {
  if (copy.term < seat_->record().term || seat_->leads() || !todo_.empty() || busy_) return;
  const History newest = copy.log.empty() ? History() : copy.log.back().history;
  // A copy that is older than what came behind it is a late one. Changes of older terms do not
  // matter: the leader may have lost them with its machine before they were on its disk.
  if (seat_->logged().term >= copy.term && IsBehind(newest, seat_->logged())) return;
  if (copy.term > seat_->record().term) seat_->OnNewerTerm(copy.term);
  TakeEffects();
  // Handing those out may have begun what the copy would cut off.
  if (!todo_.empty() || busy_) return;
  if (stalled_until_ > world_->timeline.now() || full_until_ > world_->timeline.now()) return;
  ++world_->seen["a whole copy"];
  world_->timeline.Note("{} takes a copy of {} changes", name(), copy.log.size());
  disk_.log = copy.log;
  disk_.applied = copy.log.size();
  disk_.SyncAll();
  for (const Row& row : disk_.log) world_->checker.Applied(name(), row);
  seat_->SetStore(newest);
}

// ---- Changes -----------------------------------------------------------------------

void SimSeat::Propose(Content content, std::optional<Ask> ask) {
  const History before = seat_->logged();
  const uint64_t unique[] = {world_->contents.size(), content.value, seat_->record().term};
  const History change{.term = seat_->record().term,
                       .number = before.number + 1,
                       .chain = ChainAfter(before.chain, std::as_bytes(std::span(unique)))};
  world_->contents[change.chain] = content;
  proposal_ = Proposal{.change = change,
                       .tenure = seat_->tenure(),
                       .content = content,
                       .ask = std::move(ask),
                       .since = LocalNow()};
  seat_->Propose(change);
  TakeEffects();
}

// Sends the changes with greater numbers, the proposed one among them.
void SimSeat::SendRows(uint64_t after) {
  seat_message::Rows rows{.term = seat_->record().term,
                          .tenure = seat_->tenure(),
                          .seat = name(),
                          .gives_way = seat_->needs_way(),
                          .in_sync = seat_->in_sync_of_two(),
                          .before = disk_.HistoryAt(after),
                          .committed = disk_.applied};
  // A leader may have an older leader's change that is not committed: it goes with the first own
  // one.
  for (uint64_t i = after; i < disk_.log.size(); ++i) rows.rows.push_back(disk_.log[i].history);
  if (proposal_ && proposal_->change.number == disk_.log.size() + 1) {
    rows.rows.push_back(proposal_->change);
  }
  to_other_(SeatMessage(std::move(rows)));
}

void SimSeat::Resend(const effect::Resend& resend) {
  for (const History& from : {resend.logged, resend.applied}) {
    const uint64_t number = from.number;
    if (number == 0 || number > disk_.log.size() || !(disk_.HistoryAt(number) == from)) continue;
    if (number + kKept < disk_.log.size()) break;
    ++world_->seen["a follower resumes"];
    SendRows(number);
    return;
  }
  Copy copy{.term = seat_->record().term,
            .log = std::vector<Row>(disk_.log.begin(),
                                    disk_.log.begin() + static_cast<ptrdiff_t>(disk_.applied))};
  to_other_(std::move(copy));
}

// ---- Effects -----------------------------------------------------------------------

void SimSeat::TakeEffects() {
  for (Effect& effect : seat_->TakeEffects()) todo_.push_back(std::move(effect));
  if (!busy_) Pump();
}

void SimSeat::Pump() {
  while (!todo_.empty() && !busy_) {
    if (NeedsDisk(todo_.front())) {
      const MonoTime now = world_->timeline.now();
      busy_ = true;
      const absl::Duration stall = std::max(absl::ZeroDuration(), stalled_until_ - now);
      Later(stall + world_->random.Between(absl::Microseconds(50), absl::Milliseconds(3)), [this] {
        busy_ = false;
        if (stalled_until_ > world_->timeline.now()) return Pump();
        if (full_until_ > world_->timeline.now()) {
          if (std::holds_alternative<effect::Commit>(todo_.front())) {
            // What the follower has stored cannot be taken back: this waits for room.
            busy_ = true;
            Later(absl::Milliseconds(200), [this] {
              busy_ = false;
              Pump();
            });
            return;
          }
          ++world_->seen["a process ends because its disk is full"];
          Crash(/*power=*/false);
          return;
        }
        if (world_->random.Chance(world_->faults.crash_at_write)) {
          Crash(/*power=*/world_->random.Chance(0.3));
          return;
        }
        const Effect effect = std::move(todo_.front());
        todo_.pop_front();
        Carry(effect);
        if (running()) TakeEffects();
      });
      return;
    }
    const Effect effect = std::move(todo_.front());
    todo_.pop_front();
    Carry(effect);
    if (!running()) return;
    for (Effect& more : seat_->TakeEffects()) todo_.push_back(std::move(more));
  }
  while (!inbox_.empty() && todo_.empty() && !busy_ && running()) {
    const ToSeat message = std::move(inbox_.front());
    inbox_.pop_front();
    Handle(message);
  }
}

void SimSeat::Carry(const Effect& effect) {
  std::visit(
      Overloaded{
          [this](const effect::Store&) {
            disk_.record = seat_->record();
            // Whoever asks to be elected has stored the term, and nothing else has changed.
            disk_.led = seat_->leads() || (disk_.led && seat_->is_candidate());
          },
          [this](const effect::AskWitness& ask) { to_witness_(ask.request); },
          [this](const effect::Say& say) { to_other_(say.message); },
          [this](const effect::Lead&) {
            // It may have stepped down meanwhile.
            if (!seat_->leads() || seat_->has_proposal()) return;
            world_->timeline.Note("{} leads with term {}, in sync: {}", name(),
                                  seat_->record().term, seat_->record().in_sync.size());
            ++world_->seen["somebody came to lead"];
            if (seat_->needs_way() && voted_) ++world_->seen["the other seat elects"];
            Propose({}, {});
          },
          [this](const effect::Send& send) {
            if (proposal_ && proposal_->change == send.change) SendRows(disk_.applied);
          },
          [this](const effect::Commit& commit) { Commit(commit.change); },
          [this](const effect::StepDown& down) {
            world_->timeline.Note("{} steps down for term {}", name(), down.term);
            ++world_->seen["a leader stepped down"];
            if (hands_over_ && seat_->gave_way()) ++world_->seen["a leader handed over"];
            hands_over_.reset();
            AnswerProposal(Answer::kUnknown);
            proposal_.reset();
            acts_ = false;
            heard_leader_ = LocalNow();
          },
          [this](const effect::Resend& resend) { Resend(resend); },
          [this](const effect::Log& log) {
            if (log.change.number != disk_.log.size() + 1) {
              world_->Violate("{} logs change {} behind {}", name(), log.change.number,
                              disk_.log.size());
            }
            disk_.log.push_back({log.change, world_->contents.at(log.change.chain).important});
            disk_.SyncAll();
          },
          [this](const effect::CutTail& cut) {
            if (cut.number < disk_.applied) {
              world_->Violate("{} forgets changes behind {}, and has applied {}", name(),
                              cut.number, disk_.applied);
            }
            ++world_->seen["a tail was replaced"];
            if (disk_.log.size() > cut.number) disk_.log.resize(cut.number);
            disk_.SyncAll();
          },
          [this](const effect::Apply& apply) {
            for (uint64_t i = disk_.applied; i < apply.number; ++i) {
              world_->checker.Applied(name(), disk_.log[i]);
            }
            disk_.applied = std::max(disk_.applied, apply.number);
          },
      },
      effect);
}

void SimSeat::Commit(const History& change) {
  if (!proposal_ || !(proposal_->change == change)) {
    world_->Violate("{} is to commit change {}, which it has not proposed", name(), change.number);
    return;
  }
  if (change.number != disk_.log.size() + 1) {
    world_->Violate("{} is to commit change {} behind {}", name(), change.number, disk_.log.size());
  }
  disk_.log.push_back({change, proposal_->content.important});
  disk_.applied = disk_.log.size();
  if (proposal_->content.important || !seat_->alone()) disk_.SyncAll();
  if (seat_->alone()) ++world_->seen["a change was committed alone"];
  world_->checker.Committed(name(), change.term, proposal_->tenure, disk_.log);
  if (!acts_) {
    acts_ = true;
    world_->timeline.Note("{} acts: change {} is committed", name(), change.number);
  }
  AnswerProposal(Answer::kStored);
  proposal_.reset();
}

void SimSeat::AnswerProposal(Answer answer) {
  if (!proposal_ || !proposal_->ask) return;
  proposal_->ask->answer(answer);
  proposal_->ask.reset();
}

}  // namespace longhaul::coordinator::lead_sim
