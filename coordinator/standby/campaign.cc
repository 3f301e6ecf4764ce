// How a follower comes to lead: what it asks the witness, and when (follower.h).
#include <algorithm>
#include <utility>
#include <variant>

#include "absl/time/clock.h"
#include "base/log.h"
#include "base/overloaded.h"
#include "base/watchdog.h"
#include "coordinator/standby/follower.h"
#include "coordinator/standby/seat_lines.h"
#include "coordinator/standby/voting.h"
#include "proto/rpc/status.h"
#include "proto/witness/wire.h"

namespace longhaul::coordinator {
namespace {

constexpr absl::Duration kLookAtClock = absl::Milliseconds(200);
// How often the witness is asked again.
constexpr absl::Duration kAskAgain = absl::Seconds(1);
// How long the other coordinator may take to answer.
constexpr absl::Duration kVoteLimit = absl::Seconds(3);
constexpr int kMostVotes = 3;

}  // namespace

void Follower::WatchLoop() {
  WatchedLoop watched("campaign");
  while (Sleep(kLookAtClock)) {
    watched.Turned();
    const std::lock_guard lock(mutex_);
    const MonoTime now = Now();
    // A leader that is silent holds no lease; nobody waits for it to say that it is gone.
    if (follows_ && now - heard_ >= options_.lease && context_ != nullptr) context_->TryCancel();
    CampaignLocked(now);
  }
}

void Follower::CampaignLocked(MonoTime now) {
  const bool has_witness = port_ != nullptr && port_->witness().open();
  if (seat_.leads()) {
    // The witness elected it, and went before it agreed that this coordinator is alone. The other
    // one may elect it, too, but not one that leads.
    if (!seat_.alone() && !has_witness && now - witness_heard_ >= options_.lease) {
      seat_.OnNewerTerm(seat_.record().term + 1);
      CarryLocked();
      return;
    }
    if (alone_ || now - asked_ < kAskAgain / 2) return;
    asked_ = now;
    // A full disk may have refused the record that says that it leads.
    if (!written_) WriteLocked();
    if (has_witness) seat_.Shrink();
    CarryLocked();
    return;
  }
  // Also a witness that had no record when it came: the leader may have introduced it since.
  if (!has_witness || !has_store_) return;
  // The seat that led last need not wait for the end of its own lease. But a person may have forced
  // the other one to lead, of which the witness does not know.
  const bool led_last = witness_seat_ == seat_.record().seat && !follows_ && dialled_;
  if (!led_last && now - heard_ < options_.lease) return;
  if (now - asked_ < kAskAgain) return;
  asked_ = now;
  seat_.AskWitness(NewTenure());
  CarryLocked();
}

Status Follower::OnWitnessHello(const std::string& name, const witness::Record& record) {
  // Only the witness that the records name has a vote.
  LH_ASSIGN_OR_RETURN(const VotingWitness voting, ReadVoting(options_.state_dir));
  if (voting.id != record.id) {
    return Unavailable("the records of this standby of {} do not name the witness {}",
                       options_.peer, name);
  }
  const std::lock_guard lock(mutex_);
  TakeWitnessRecordLocked(record);
  CampaignLocked(Now());
  return absl::OkStatus();
}

void Follower::TakeWitnessRecordLocked(const witness::Record& record) {
  witness_heard_ = Now();
  witness_seat_ = record.seat;
  seat_.OnWitness(record);
  CarryLocked();
}

void Follower::OnWitnessAnswer(const v1::WitnessSays::Answer& answer) {
  const witness::Record record = witness::FromProto(answer.record());
  // The leader may have let another witness count since the hello.
  const StatusOr<VotingWitness> voting = ReadVoting(options_.state_dir);
  if (!voting.ok() || voting->id != record.id) return;
  const std::lock_guard lock(mutex_);
  TakeWitnessRecordLocked(record);
  witness_refuses_ = !answer.granted();
  if (!answer.granted() && witness_why_ != answer.why()) {
    witness_why_ = answer.why();
    LogInfo("the witness does not elect this coordinator: {}", answer.why());
  }
  CampaignLocked(Now());
}

// ---- Without the witness -------------------------------------------------------------

bool Follower::MayAskOther() const {
  const std::lock_guard lock(mutex_);
  if (closing_ || seat_.leads() || !has_store_ || port_ == nullptr) return false;
  const MonoTime now = Now();
  if (now - heard_ < options_.lease) return false;
  // The witness elects no seat that gave way. It refuses one that is not in sync, and the other
  // seat, which is, may have given way.
  return seat_.gave_way() || witness_refuses_ ||
         (now - witness_heard_ >= options_.lease && !port_->witness().open());
}

void Follower::AskOther() {
  std::optional<SeatMessage> said;
  {
    const std::lock_guard lock(mutex_);
    if (closing_ || !has_store_) return;
    seat_.AskOther(NewTenure());
    said = CarryLocked();
  }
  // A refusal because of the term has the seat ask again, for a newer one.
  for (int tries = 0; tries < kMostVotes && said; ++tries) {
    const auto* const vote = std::get_if<seat_message::Vote>(&*said);
    if (vote == nullptr) return;
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kVoteLimit));
    v1::VoteReply reply;
    const Status status = FromGrpc(seat_stub_->Get()->Vote(&context, RequestOf(*vote), &reply));
    if (!status.ok()) {
      LogDebug("{} does not vote: {}", options_.peer, Message(status));
      return;
    }
    const seat_message::Voted voted{.term = vote->term,
                                    .tenure = vote->tenure,
                                    .seat = reply.seat(),
                                    .granted = reply.granted(),
                                    .newest = reply.newest()};
    const std::lock_guard lock(mutex_);
    if (!voted.granted && last_refusal_ != reply.why()) {
      last_refusal_ = reply.why();
      LogInfo("{} does not elect this coordinator: {}", options_.peer, last_refusal_);
    }
    seat_.OnSeat(voted);
    said = CarryLocked();
  }
}

v1::VoteReply Follower::OnVote(const v1::VoteRequest& request) {
  const seat_message::Vote vote = VoteOf(request);
  const std::lock_guard lock(mutex_);
  seat_message::Voted voted{.term = vote.term,
                            .tenure = vote.tenure,
                            .seat = seat_.record().seat,
                            .newest = std::max(seat_.record().term, seat_.record().asked)};
  const std::string& other = seat_.record().other;
  if (!other.empty() && vote.seat != other) {
    return ReplyOf(voted, "the other coordinator of this one is not the one that asks");
  }
  if (closing_ || !has_store_) return ReplyOf(voted, "its records are not complete");
  if (follows_ && Now() - heard_ < options_.lease) return ReplyOf(voted, "it hears a leader");
  const Seat before = seat_;
  seat_.OnSeat(vote);
  const std::optional<SeatMessage> said = CarryLocked();
  // A vote that a full disk refused is not given, so this seat has not given way.
  if (!written_) seat_ = before;
  // It counts only if it is stored.
  if (said && written_ && std::holds_alternative<seat_message::Voted>(*said)) {
    voted = std::get<seat_message::Voted>(*said);
  }
  if (voted.granted) {
    LogInfo("this coordinator elects {}, with term {}", options_.peer, vote.term);
    heard_ = Now();
  }
  return ReplyOf(voted, "it leads, or has changes that the other one lacks, or asks itself");
}

std::optional<SeatMessage> Follower::CarryLocked() {
  std::optional<SeatMessage> said;
  for (const Effect& effect : seat_.TakeEffects()) {
    std::visit(Overloaded{
                   [&](const effect::Store&) { WriteLocked(); },
                   [&](const effect::AskWitness& ask) {
                     // The term for which it asks has to be stored.
                     if (port_ != nullptr && written_) port_->witness().Ask(ask.request);
                   },
                   [&](const effect::Lead&) {
                     LogWarning(
                         "the coordinator {} has been silent for {}, and {} has elected this one, "
                         "with term {}",
                         options_.peer,
                         absl::FormatDuration(absl::Trunc(Now() - heard_, kLookAtClock)),
                         seat_.needs_way() ? "it" : "the witness", seat_.record().term);
                     if (context_ != nullptr) context_->TryCancel();
                     asked_ = {};  // what it needs next may be asked at once
                   },
                   // What is not stored must not be said.
                   [&](const effect::Say& say) {
                     if (written_) said = say.message;
                   },
                   [](const auto&) {},
               },
               effect);
  }
  // The waits for the witness are over, and the record says so.
  if (seat_.leads() && seat_.alone() && written_) alone_ = true;
  return said;
}

void Follower::WriteLocked() {
  record_.seat = seat_.record();
  if (seat_.gave_way()) record_.role = LeaderRole::kStandby;
  // If this process ends before it serves, the next one leads by this record: the other coordinator
  // may have given way, and the records here need not name the witness yet.
  if (seat_.leads() && seat_.alone()) record_.role = LeaderRole::kCoordinator;
  const Status status = WriteLeadership(options_.state_dir, record_);
  written_ = status.ok();
  if (!status.ok()) LogError("{}", Message(status));
}

}  // namespace longhaul::coordinator
