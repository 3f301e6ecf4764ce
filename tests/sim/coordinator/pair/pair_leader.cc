// The part of PairSeat that leads: coordinator/standby/leadership.cc, rpc/follow_session.cc and
// store/journal.cc.
#include <algorithm>
#include <utility>

#include "tests/sim/coordinator/pair/pair_seat.h"
#include "tests/sim/coordinator/pair/pair_times.h"

namespace longhaul::coordinator::sim {
namespace {

constexpr int64_t kUnixStart = 1'700'000'000;
// A superseded leader knows by then that it is not sure any more.
constexpr absl::Duration kLongestAfterwards = absl::Seconds(8);

}  // namespace

void PairSeat::LeadBy(std::optional<Seat> elected) {
  mode_ = Mode::kLeads;
  follower_.reset();
  live_ = has_witness_ = introduce_ = witness_agrees_ = adopts_witness_ = false;
  told_sure_ = true;
  just_elected_ = elected.has_value();
  synced_ = 0;
  follower_heard_ = follower_left_ = witness_heard_ = witness_asked_ = shrink_asked_ = MonoTime();
  follower_beat_ = workers_beat_ = MonoTime();
  superseded_.reset();
  words_ = WorkerWords();
  seat_ = std::make_unique<Seat>(elected ? *elected : Seat(disk_.record));
  seat_->SetStore(disk_.Applied(), disk_.Tail());
  if (!elected && !seat_->LeadAlone(NewTenure(), standing().logged().term)) {
    return BeginAnew("its record does not say that it is alone");
  }
  const uint64_t process = process_;
  StoreRecord();
  if (process != process_) return;
  seat_->TakeEffects();
  committed_ = disk_.applied;
  timeline().Note("{} leads with term {}, in sync: {}", name(), seat_->record().term,
                  seat_->record().in_sync.size());
  pair_->Saw(elected ? "a follower takes over" : "leads by its own record");
  Write({}, /*sets_witness=*/false, [this] {
    has_witness_ = HasWitness();
    started_ = LocalNow();
    BuildStore();
    const bool newest = seat_->record().term >= pair_->newest_term;
    if (newest) pair_->new_term(place_);
    shell_->Lead(*store_, {.term = seat_->record().term, .tenure = seat_->tenure()}, newest);
  });
}

void PairSeat::BuildStore() {
  const bool goes_on =
      store_ != nullptr && built_ <= disk_.applied && disk_.HistoryAt(built_).chain == built_chain_;
  if (!goes_on) {
    store_ = MakeModelStore();
    built_ = 0;
  }
  for (; built_ < disk_.applied; ++built_) {
    store_->Apply(pair_->ChangeOf(disk_.log[built_].history).writes);
  }
  built_chain_ = disk_.Applied().chain;
}

// ---- Time --------------------------------------------------------------------------

bool PairSeat::WaitsForWitness() const {
  return !just_elected_ && has_witness_ && witness_heard_ == MonoTime() &&
         LocalNow() - started_ < kLease;
}

bool PairSeat::sure() const {
  if (!acts() || WaitsForWitness()) return false;
  if (!seat_->in_sync_of_two()) return true;
  return LocalNow() - std::max(follower_heard_, witness_heard_) < kLease;
}

void PairSeat::TickAsLeader() {
  const MonoTime now = LocalNow();
  const uint64_t process = process_;
  // The thread waits for the disk, and nobody hears of what is not stored.
  const auto waits = [&] { return process != process_ || !todo_.empty(); };
  if (under_way_ && under_way_->committing && now - under_way_->secured_at >= kWatchdog &&
      seat_->in_sync_of_two()) {
    pair_->Saw("the watchdog ends a leader whose disk stalls");
    return BeginAnew("its disk does not answer");
  }
  LookAtChange();
  if (waits() || !acts()) return;
  // A witness that was never heard may have an empty record.
  const bool may_grow = has_witness_ && witness_heard_ != MonoTime() && !introduce_;
  if (live_ && may_grow && !seat_->in_sync_of_two() && seat_->Grow(follower_->seat)) {
    pair_->Saw("both in sync");
    pair_->both_in_sync(place_);
    Carry();
    if (waits()) return;
  }
  if (has_witness_ && now - witness_asked_ >= kWitnessBeat) Beat();
  if (waits()) return;
  if (std::exchange(adopts_witness_, false) && !has_witness_) {
    Write({}, /*sets_witness=*/true, [this] {
      timeline().Note("the witness counts from now on");
      has_witness_ = introduce_ = true;
      witness_asked_ = MonoTime();
    });
    if (process != process_) return;
  }
  if (follower_ && now - follower_->heard >= kFollowerPatience) DropFollower();
  if (follower_ && now - follower_beat_ >= kFollowerBeat) {
    follower_beat_ = now;
    const std::vector<std::string>& in_sync = seat_->record().in_sync;
    SendDown(pair_message::Beat{
        .committed = committed_,
        .in_sync = live_ && in_sync.size() == 2 &&
                   std::ranges::find(in_sync, follower_->seat) != in_sync.end()});
  }
  const bool is_sure = sure();
  if (std::exchange(told_sure_, is_sure) && !is_sure) {
    timeline().Note("{} is not sure that it leads", name());
    pair_->Saw("a leader is not sure");
    shell_->FailCalls();
  }
  // The loop that beats to workers stands still while a change waits.
  if (is_sure && now - workers_beat_ >= kWorkersBeat && !shell_->committing()) {
    workers_beat_ = now;
    BeatWorkers();
  }
}

void PairSeat::BeatWorkers() {
  shell_->Beat();
  if (pair_->newest_term <= seat_->record().term) return;
  if (!superseded_) superseded_ = LocalNow();
  if (LocalNow() - *superseded_ > kLongestAfterwards) {
    pair_->world->Violate("{} has been superseded for {}, and tells workers that it leads", name(),
                          absl::FormatDuration(LocalNow() - *superseded_));
  }
}

// To the witness.
void PairSeat::Beat() {
  const MonoTime now = LocalNow();
  // The disk does not answer, so the other coordinator may be elected.
  const bool stalls =
      under_way_ && under_way_->secured && now - under_way_->secured_at >= kDiskPatience;
  if (stalls && seat_->in_sync_of_two()) return;
  witness_asked_ = now;
  if (introduce_) {
    to_witness_(seat_->Introduction());
    return;
  }
  const uint64_t process = process_;
  if (!witness_agrees_) {
    seat_->RemindWitness();
    Carry();
    if (process != process_) return;
  }
  to_witness_(witness::Beat{
      .term = seat_->record().term, .tenure = seat_->tenure(), .seat = name(), .number = synced_});
}

// ---- The follower ------------------------------------------------------------------

void PairSeat::SendDown(decltype(pair_message::Message::body) body) {
  to_other_({.stream = follower_->stream, .number = ++follower_->sent, .body = std::move(body)});
}

void PairSeat::DropFollower() {
  if (!follower_) return;
  SendDown(pair_message::Bye());
  follower_.reset();
  if (std::exchange(live_, false)) follower_left_ = LocalNow();
}

void PairSeat::TakeFollower(const pair_message::Message& message) {
  if (const auto* hello = std::get_if<pair_message::Hello>(&message.body)) {
    if (follower_) {
      to_other_({.stream = message.stream, .number = 1, .body = pair_message::Bye()});
      return;
    }
    if (hello->term > seat_->record().term) {
      pair_->Saw("a follower knows a newer term");
      seat_->OnNewerTerm(hello->term);
      return Carry();
    }
    const History logged = hello->standing ? hello->standing->logged() : History();
    if (!seat_->MayFeed(hello->seat, logged)) {
      pair_->Saw("a follower has lost what it had");
      shrink_asked_ = LocalNow();
      to_other_({.stream = message.stream, .number = 1, .body = pair_message::Bye()});
      return Carry();
    }
    follower_ = Follower{.stream = message.stream,
                         .seat = hello->seat,
                         .received = message.number,
                         .has_from = disk_.log.size(),
                         .heard = LocalNow()};
    live_ = false;
    follower_heard_ = LocalNow();
    seat_->ForgetFollower();
    const auto at = [this](uint64_t number) -> std::optional<History> {
      if (number > disk_.log.size() || number + kKeptChanges < disk_.log.size()) return {};
      return disk_.HistoryAt(number);
    };
    pair_message::Begin begin{.term = seat_->record().term,
                              .seat = name(),
                              .gives_way = seat_->needs_way(),
                              .newest = disk_.HistoryAt(disk_.log.size()),
                              .resume_after = {},
                              .copy = {}};
    if (hello->standing) begin.resume_after = ResumeAfter(*hello->standing, at);
    const uint64_t from = begin.resume_after ? *begin.resume_after : disk_.log.size();
    if (!begin.resume_after) begin.copy = disk_.log;
    SendDown(std::move(begin));
    for (uint64_t i = from; i < disk_.log.size(); ++i) {
      SendDown(pair_message::Change{disk_.log[i].history.chain});
    }
    if (under_way_ && under_way_->proposed) SendDown(pair_message::Change{ChainUnderWay()});
    return;
  }
  if (!follower_ || message.stream != follower_->stream) return;
  if (std::holds_alternative<pair_message::Bye>(message.body)) {
    follower_.reset();
    if (std::exchange(live_, false)) follower_left_ = LocalNow();
    return LookAtChange();
  }
  if (message.number != follower_->received + 1) return;
  follower_->received = message.number;
  const auto* logged = std::get_if<pair_message::Logged>(&message.body);
  if (logged == nullptr) return;
  follower_->heard = follower_heard_ = LocalNow();
  const uint64_t process = process_;
  seat_->OnSeat(seat_message::Logged{
      .term = seat_->record().term, .tenure = seat_->tenure(), .history = logged->history});
  Carry();
  if (process != process_) return;
  if (!live_ && logged->history.number >= follower_->has_from) {
    live_ = true;
    live_since_ = LocalNow();
    timeline().Note("{} has all that {} has", follower_->seat, name());
  }
  LookAtChange();
}

// ---- Changes -----------------------------------------------------------------------

void PairSeat::Write(std::vector<coordinator::Write> writes, bool sets_witness,
                     std::function<void()> then) {
  auto change = std::make_shared<PairChange>();
  change->writes = std::move(writes);
  change->sets_witness = sets_witness;
  waiting_.push_back(
      {.change = std::move(change), .tenure = seat_->tenure(), .then = std::move(then)});
  TryNext();
}

void PairSeat::TryNext() {
  if (under_way_ || waiting_.empty()) return;
  if (full_until_ > timeline().now()) {
    Later(absl::Seconds(1), [this] { TryNext(); });
    return;
  }
  UnderWay next = std::move(waiting_.front());
  waiting_.pop_front();
  auto change = std::make_shared<PairChange>(*next.change);
  // A statement that no other change has, so that chains differ.
  v1::StoreChange stored;
  stored.add_statements()->set_sql(fmt::format("change {}", ++pair_->last_change));
  StatusOr<NamedChange> named = NameChange(standing(), std::move(stored), seat_->record().term, 0,
                                           /*begins_term=*/!shell_->running());
  if (!named.ok()) return BeginAnew(std::string(Message(named.status())));
  change->named = *std::move(named);
  pair_->changes[change->named.history().chain] = change;
  next.change = std::move(change);
  next.tenure = seat_->tenure();
  under_way_ = std::move(next);
  LookAtChange();
}

uint64_t PairSeat::ChainUnderWay() const {
  return under_way_->change->named.history().chain;
}

// Goes on with the change under way as far as it can.
void PairSeat::LookAtChange() {
  if (!under_way_ || under_way_->committing || !todo_.empty()) return;
  const uint64_t process = process_;
  const MonoTime now = LocalNow();
  if (!under_way_->proposed) {
    // This record may be an older copy, and the witness knows.
    if (WaitsForWitness()) return;
    under_way_->proposed = true;
    under_way_->began = now;
    seat_->Propose(under_way_->change->named.history());
    Carry();
    if (process != process_) return;
  }
  const uint64_t number = under_way_->change->named.history().number;
  const bool stored_there = seat_->acknowledged() >= number;
  if (under_way_->secured && (!live_ || stored_there)) {
    under_way_->by_both = stored_there;
    return Commit();
  }
  const MonoTime began = under_way_->began;
  // One that has come meanwhile has not had this change for so long.
  const MonoTime patient_from = live_       ? std::max(began, live_since_)
                                : follower_ ? began
                                            : std::min(began, follower_left_);
  if (now - patient_from < kFollowerPatience) return;
  if (live_ && follower_) {
    DropFollower();
    return LookAtChange();
  }
  if (now - shrink_asked_ < kWitnessBeat) return;
  shrink_asked_ = now;
  seat_->Shrink();
  Carry();
}

// What is secured cannot be taken back: where the disk is full, it is tried again.
void PairSeat::Commit() {
  under_way_->committing = true;
  OnDisk(
      [this] {
        const UnderWay done = *std::exchange(under_way_, std::nullopt);
        const History history = done.change->named.history();
        if (history.number != disk_.log.size() + 1) {
          pair_->world->Violate("{} is to commit change {} behind {}", name(), history.number,
                                disk_.log.size());
        }
        disk_.log.push_back({history, done.change->important});
        disk_.applied = disk_.log.size();
        if (done.change->important || seat_->in_sync_of_two()) disk_.SyncAll();
        if (seat_->alone()) pair_->Saw("a change was committed alone");
        pair_->Committed(name(), history.term, done.tenure, disk_.log);
        committed_ = history.number;
        if (done.by_both) synced_ = history.number;
        const uint64_t process = process_;
        if (!pair_->Fine()) return;
        done.then();
        if (process == process_) TryNext();
      },
      [this] {
        pair_->Saw("a disk refuses a change that is secured");
        Later(absl::Seconds(1), [this] {
          if (under_way_ && under_way_->committing) Commit();
        });
      });
}

// ---- Workers and users -------------------------------------------------------------

bool PairSeat::Admits(const v1::Hello& hello) {
  const LeaderNow lead{.term = seat_->record().term,
                       .tenure = seat_->tenure(),
                       .change = committed_,
                       .has_voters = has_witness_,
                       .had_standby = true,
                       .is_here = false};
  const WorkerWord word{.worker = hello.name(),
                        .term = hello.term(),
                        .tenure = Tenure(hello.tenure()),
                        .leader_address = hello.leader_address(),
                        .change = hello.change()};
  const int64_t unix_seconds = kUnixStart + absl::ToInt64Seconds(timeline().elapsed());
  const WordAnswer answer = words_.On(lead, word, LocalNow(), unix_seconds);
  if (answer.step == WordStep::kWelcome) return sure();
  pair_->Saw("a worker knows another leader");
  if (answer.step == WordStep::kElect || answer.step == WordStep::kRaise) {
    if (full_until_ > timeline().now()) return false;
    disk_.record.term = std::max(disk_.record.term, answer.above);
    BeginAnew(answer.why);
  }
  return false;
}

std::shared_ptr<Connection> PairSeat::Accept(Connection::WorkerEnd end) {
  return acts() ? shell_->Accept(std::move(end)) : nullptr;
}

void PairSeat::Ask(const std::function<Event(RequestId)>& make, SimCoordinator::Done done) {
  if (!acts() || !sure()) {
    done(nullptr);
    return;
  }
  shell_->Ask(make, std::move(done));
}

}  // namespace longhaul::coordinator::sim
