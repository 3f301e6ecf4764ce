#include "coordinator/standby/leadership.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/overloaded.h"
#include "base/watchdog.h"

namespace longhaul::coordinator {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(200);
constexpr absl::Duration kWitnessBeat = absl::Seconds(1);
// A leader whose disk has not committed a change for this long says no more that it lives.
constexpr absl::Duration kDiskPatience = absl::Seconds(1);

History HistoryOfChange(const v1::StoreChange& change) {
  return {.term = change.term(), .number = change.number(), .chain = change.chain()};
}

}  // namespace

Status Leadership::LeadsNoMore() {
  return absl::AbortedError("this coordinator leads no more");
}

StatusOr<std::unique_ptr<Leadership>> Leadership::Begin(std::string state_dir,
                                                        LeadershipRecord record, Seat seat) {
  if (!seat.leads()) return absl::InternalError("the seat has not been elected");
  record.role = LeaderRole::kCoordinator;
  record.seat = seat.record();
  LH_RETURN_IF_ERROR(WriteLeadership(state_dir, record));
  std::unique_ptr<Leadership> leadership(
      new Leadership(std::move(state_dir), std::move(record), std::move(seat)));
  // It was elected before this object began, and all of its effects were carried out.
  leadership->seat_.TakeEffects();
  leadership->secured_ = leadership->committed_ = leadership->seat_.applied().number;
  return leadership;
}

void Leadership::Start(Hooks hooks, VotingWitness witness) {
  const std::lock_guard lock(mutex_);
  hooks_ = std::move(hooks);
  witness_ = std::move(witness);
  started_ = Now();
  thread_ = std::thread([this] { Loop(); });
}

Leadership::~Leadership() {
  Close(absl::ZeroDuration());
}

void Leadership::Close(absl::Duration patience) {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    abort_from_ = std::min(abort_from_, Now() + patience);
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

// ---- Changes -----------------------------------------------------------------------

StatusOr<Held> Leadership::Secure(const v1::StoreChange& change) {
  const uint64_t number = change.number();
  std::unique_lock lock(mutex_);
  while (failure_.ok() && WaitsForWitnessLocked(Now()) && Now() < abort_from_) {
    changed_.wait_until(lock, std::min(abort_from_, started_ + kLease).ToChrono());
  }
  // The standby is to lead, and to have every change then.
  while (hands_over_ && failure_.ok() && Now() < abort_from_) {
    changed_.wait_for(lock, absl::ToChronoNanoseconds(kLook));
  }
  if (!failure_.ok()) return LeadsNoMore();
  under_way_ = std::make_shared<const v1::StoreChange>(change);
  seat_.Propose(HistoryOfChange(change));
  CarryLocked();
  const auto stored_there = [&] { return seat_.acknowledged() >= number; };
  const MonoTime began = Now();
  while (failure_.ok()) {
    if (secured_ >= number && (!live_ || stored_there())) break;
    const MonoTime now = Now();
    if (now >= abort_from_) break;
    // A follower that left some time ago is not waited for again.
    // One that has come meanwhile has not had this change for so long.
    const MonoTime patient_until = (live_              ? std::max(began, live_since_)
                                    : sink_ != nullptr ? began
                                                       : std::min(began, follower_left_)) +
                                   kFollowerPatience;
    if (now >= patient_until) {
      if (live_ && sink_ != nullptr) {
        live_ = false;
        follower_left_ = now;
        sink_->Drop(DeadlineExceeded(
            "the standby had a change for {} and did not say that it has stored it",
            absl::FormatDuration(kFollowerPatience)));
        continue;
      }
      // A repetition, because the witness may have been away.
      if (now - shrink_asked_ >= kWitnessBeat) {
        if (!seat_.shrinks()) {
          LogWarning(
              "the standby is not to be heard; the witness is asked whether this coordinator "
              "goes on alone");
        }
        shrink_asked_ = now;
        seat_.Shrink();
        CarryLocked();
        continue;
      }
      changed_.wait_until(lock, std::min(abort_from_, shrink_asked_ + kWitnessBeat).ToChrono());
    } else {
      changed_.wait_until(lock, std::min(abort_from_, patient_until).ToChrono());
    }
  }
  // A secured change is committed, whatever has come since.
  if (secured_ >= number) {
    secured_at_ = Now();
    const bool both = stored_there();
    secured_by_both_ = both;
    return both ? Held::kBoth : Held::kHere;
  }
  under_way_.reset();
  return LeadsNoMore();
}

bool Leadership::needs_sync() const {
  const std::lock_guard lock(mutex_);
  return seat_.in_sync_of_two();
}

void Leadership::Committed(const History& history) {
  const std::lock_guard lock(mutex_);
  committed_ = history.number;
  // Not before: if this disk has not got it yet, this coordinator would lack what the witness
  // knows.
  if (secured_by_both_) synced_ = history.number;
  under_way_.reset();
  changed_.notify_all();
}

uint64_t Leadership::committed() const {
  const std::lock_guard lock(mutex_);
  return committed_;
}

std::optional<SeatMessage> Leadership::CarryLocked() {
  std::optional<SeatMessage> said;
  for (const Effect& effect : seat_.TakeEffects()) {
    std::visit(Overloaded{
                   [&](const effect::Store&) {
                     if (const Status written = WriteLocked(); !written.ok()) {
                       // Nothing that was said before may be forgotten: this process ends.
                       LogError("{}", Message(written));
                       failure_ = written;
                     }
                   },
                   [&](const effect::AskWitness& ask) {
                     const bool may = failure_.ok() && !closing_ && !witness_.id.empty();
                     if (!may || !hooks_.ask_witness) return;
                     hooks_.ask_witness(ask.request);
                   },
                   [&](const effect::Send&) {
                     if (sink_ != nullptr) sink_->Changed(*under_way_);
                   },
                   [&](const effect::Commit& commit) { secured_ = commit.change.number; },
                   [&](const effect::StepDown& down) { FailLocked(down.term); },
                   [&](const effect::Say& say) { said = say.message; },
                   [](const auto&) {},
               },
               effect);
  }
  changed_.notify_all();
  return said;
}

Status Leadership::WriteLocked() {
  record_.seat = seat_.record();
  if (!seat_.leads()) record_.role = LeaderRole::kFenced;
  return WriteLeadership(state_dir_, record_);
}

void Leadership::FailLocked(uint64_t newer_term) {
  if (!failure_.ok()) return;
  const std::string successor =
      record_.peer.empty() ? std::string() : fmt::format("{} ", record_.peer);
  failure_ = FailedPrecondition(
      "another coordinator leads: {}(term {}); this one, of term {}, leads no more. Start it with "
      "--standby HOST:PORT of that one, and it follows it",
      successor, newer_term, term_);
  LogWarning("{}", Message(failure_));
}

bool Leadership::begins_anew() const {
  const std::lock_guard lock(mutex_);
  return absl::IsAborted(failure_);
}

LeadershipRecord Leadership::record() const {
  const std::lock_guard lock(mutex_);
  return record_;
}

Status Leadership::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

// ---- The follower ------------------------------------------------------------------

Status Leadership::Follow(const std::shared_ptr<ChangeSink>& sink, const std::string& seat,
                          uint64_t term, const History& logged) {
  const std::lock_guard lock(mutex_);
  if (!failure_.ok()) return LeadsNoMore();
  if (sink_ != nullptr) {
    return absl::FailedPreconditionError("this coordinator has a standby already");
  }
  // It was elected meanwhile, or has elected somebody, and follows no older term.
  if (term > term_) {
    seat_.OnNewerTerm(term);
    CarryLocked();
    return Unavailable("this coordinator has term {}, and its standby knows term {}", term_, term);
  }
  if (!seat_.MayFeed(seat, logged)) {
    shrink_asked_ = Now();
    CarryLocked();
    return Unavailable(
        "the records of this standby end at change {}, and it had stored more before, or another "
        "standby is in sync: the witness is asked first whether this coordinator goes on alone",
        logged.number);
  }
  sink_ = sink;
  live_ = false;
  missing_blobs_ = missing_bytes_ = 0;
  follower_heard_ = Now();
  seat_.ForgetFollower();
  if (under_way_ != nullptr) sink_->Changed(*under_way_);
  return absl::OkStatus();
}

void Leadership::Has(const ChangeSink* sink, const History& logged) {
  const std::lock_guard lock(mutex_);
  if (sink != sink_.get()) return;
  follower_heard_ = Now();
  seat_.OnSeat(seat_message::Logged{.term = term_, .tenure = tenure_, .history = logged});
  if (live_) TickLocked(follower_heard_);
  CarryLocked();
}

void Leadership::HasAll(const ChangeSink* sink, const std::string& seat,
                        const std::string& address) {
  const std::lock_guard lock(mutex_);
  if (sink != sink_.get() || live_) return;
  live_ = true;
  live_since_ = Now();
  live_seat_ = seat;
  live_address_ = address;
  LogInfo("the standby {} has all that this coordinator has", address);
  if (record_.peer != address || record_.seat.other != seat) {
    record_.peer = address;
    if (const Status written = WriteLocked(); !written.ok()) LogError("{}", Message(written));
  }
  TickLocked(Now());
  CarryLocked();
}

bool Leadership::NeedsWay() const {
  const std::lock_guard lock(mutex_);
  return seat_.needs_way();
}

bool Leadership::IsInSync(const ChangeSink* sink) const {
  const std::lock_guard lock(mutex_);
  if (sink != sink_.get() || !live_) return false;
  const std::vector<std::string>& in_sync = seat_.record().in_sync;
  return seat_.in_sync_of_two() && std::ranges::find(in_sync, live_seat_) != in_sync.end();
}

void Leadership::Misses(const ChangeSink* sink, uint64_t blobs, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (sink != sink_.get()) return;
  missing_blobs_ = blobs;
  missing_bytes_ = bytes;
}

void Leadership::Gone(const ChangeSink* sink) {
  const std::lock_guard lock(mutex_);
  if (sink != sink_.get()) return;
  sink_.reset();
  if (std::exchange(live_, false)) follower_left_ = Now();
  changed_.notify_all();
}

// ---- The clock ---------------------------------------------------------------------

void Leadership::Loop() {
  WatchedLoop watched("leadership");
  std::unique_lock lock(mutex_);
  while (!closing_ && failure_.ok()) {
    watched.Turned();
    TickLocked(Now());
    CarryLocked();
    ForgetRevokedWitness(&lock);
    if (new_witness_) AdoptWitness(&lock);
    if (word_) AskForTerm(&lock);
    TellSure(&lock);
    if (closing_ || !failure_.ok()) break;
    changed_.wait_for(lock, absl::ToChronoNanoseconds(kLook));
  }
  TellSure(&lock);
}

void Leadership::TickLocked(MonoTime now) {
  if (!failure_.ok()) return;
  if (witness_.id.empty()) return;
  // A witness that was never heard may have an empty record, and would then elect nobody.
  const bool may_grow = witness_heard_ != MonoTime() && !introduce_ && !stays_alone_;
  if (live_ && may_grow && !seat_.in_sync_of_two() && seat_.Grow(live_seat_)) {
    LogInfo("from now on every change waits for the standby {}", live_address_);
  }
  if (now - witness_asked_ < kWitnessBeat) return;
  // The disk does not answer, so the other coordinator may be elected.
  const bool stalls = under_way_ != nullptr && secured_ >= under_way_->number() &&
                      now - secured_at_ >= kDiskPatience;
  if (stalls && seat_.in_sync_of_two()) return;
  witness_asked_ = now;
  if (!hooks_.ask_witness) return;
  if (introduce_) {
    hooks_.ask_witness(seat_.Introduction());
    return;
  }
  if (!witness_agrees_) {
    // Before the beat, which is refused as long as the witness does not know who leads.
    seat_.RemindWitness();
    CarryLocked();
  }
  hooks_.ask_witness(witness::Beat{
      .term = term_, .tenure = tenure_, .seat = seat_.record().seat, .number = synced_});
}

Status Leadership::SureLocked(MonoTime now) const {
  if (!failure_.ok()) return Unavailable("{}", Message(failure_));
  if (WaitsForWitnessLocked(now)) {
    return absl::UnavailableError(
        "this coordinator has just started, and asks the witness whether it still leads; ask again "
        "in a moment");
  }
  if (!seat_.in_sync_of_two()) return absl::OkStatus();
  if (now - std::max(follower_heard_, witness_heard_) < kLease) return absl::OkStatus();
  return absl::UnavailableError(
      "this coordinator hears neither the standby nor the witness, so it is not sure that it still "
      "leads; ask again, or ask the other coordinator");
}

Status Leadership::sure() const {
  const std::lock_guard lock(mutex_);
  return SureLocked(Now());
}

void Leadership::TellSure(std::unique_lock<std::mutex>* lock) {
  const Status sure = SureLocked(Now());
  if (sure == std::exchange(told_sure_, sure)) return;
  if (sure.ok()) {
    LogInfo("this coordinator is sure again that it leads");
  } else if (failure_.ok()) {
    LogWarning("{}", Message(sure));
  }
  if (!hooks_.on_sure) return;
  lock->unlock();
  hooks_.on_sure(sure);
  lock->lock();
}

// ---- For people --------------------------------------------------------------------

std::optional<bool> Leadership::has_standby() const {
  const std::lock_guard lock(mutex_);
  if (record_.peer.empty()) return std::nullopt;
  return live_;
}

v1::LeadershipInfo Leadership::Info() const {
  using Standby = v1::LeadershipInfo::Standby;
  const std::lock_guard lock(mutex_);
  const MonoTime now = Now();
  v1::LeadershipInfo info;
  info.set_term(term_);
  info.set_since_unix_ms(since_unix_ms_);
  const Status sure = SureLocked(now);
  info.set_sure(sure.ok());
  info.set_why_unsure(std::string(Message(sure)));
  Standby& standby = *info.mutable_standby();
  standby.set_address(live_ ? live_address_ : record_.peer);
  // Without a witness changes are copied, and the other coordinator cannot be elected.
  standby.set_state(sink_ == nullptr ? (record_.peer.empty() ? Standby::NONE : Standby::AWAY)
                    : !live_         ? Standby::COPYING
                                     : Standby::IN_SYNC);
  if (sink_ != nullptr && committed_ > seat_.acknowledged()) {
    standby.set_behind_changes(committed_ - seat_.acknowledged());
  }
  if (sink_ != nullptr) {
    standby.set_missing_blobs(missing_blobs_);
    standby.set_missing_bytes(missing_bytes_);
  }
  if (!witness_.id.empty()) {
    info.mutable_witness()->set_name(witness_.name);
    info.mutable_witness()->set_heard_seconds(
        witness_heard_ == MonoTime() ? -1 : absl::ToDoubleSeconds(now - witness_heard_));
  }
  if (witness_.id.empty() && !record_.peer.empty()) {
    info.set_notes(
        "there is no witness, so the standby does not take over by itself (longhaul-coordinator "
        "witness)");
  }
  if (stays_alone_) {
    info.set_notes(
        "this coordinator leads alone, because a person wants it so: the standby is not in sync "
        "before this one starts again");
  }
  return info;
}

}  // namespace longhaul::coordinator
