// How a follower comes to lead: what it asks the witness, and when (follower.h).
#include <utility>

#include "base/log.h"
#include "base/overloaded.h"
#include "coordinator/standby/follower.h"
#include "coordinator/standby/voting.h"
#include "proto/witness/wire.h"

namespace longhaul::coordinator {
namespace {

constexpr absl::Duration kLookAtClock = absl::Milliseconds(200);
// How often the witness is asked again.
constexpr absl::Duration kAskAgain = absl::Seconds(1);

}  // namespace

void Follower::WatchLoop() {
  while (Sleep(kLookAtClock)) {
    const std::lock_guard lock(mutex_);
    const MonoTime now = Now();
    // A leader that is silent holds no lease; nobody waits for it to say that it is gone.
    if (follows_ && now - heard_ >= options_.lease && context_ != nullptr) context_->TryCancel();
    CampaignLocked(now);
  }
}

void Follower::CampaignLocked(MonoTime now) {
  if (port_ == nullptr || !port_->witness().open()) return;
  if (seat_.leads()) {
    if (!alone_ && now - asked_ >= kAskAgain / 2) {
      asked_ = now;
      seat_.Shrink();
      CarryLocked();
    }
    return;
  }
  if (!has_store_ || witness_seat_.empty()) return;
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
  witness_seat_ = record.seat;
  seat_.OnWitness(record);
  CarryLocked();
  CampaignLocked(Now());
  return absl::OkStatus();
}

void Follower::OnWitnessAnswer(const v1::WitnessSays::Answer& answer) {
  const witness::Record record = witness::FromProto(answer.record());
  // The leader may have let another witness count since the hello.
  const StatusOr<VotingWitness> voting = ReadVoting(options_.state_dir);
  if (!voting.ok() || voting->id != record.id) return;
  const std::lock_guard lock(mutex_);
  witness_seat_ = record.seat;
  seat_.OnWitness(record);
  CarryLocked();
  if (!answer.granted() && witness_why_ != answer.why()) {
    witness_why_ = answer.why();
    LogInfo("the witness does not elect this coordinator: {}", answer.why());
  }
  CampaignLocked(Now());
}

void Follower::CarryLocked() {
  for (const Effect& effect : seat_.TakeEffects()) {
    std::visit(Overloaded{
                   [&](const effect::Store&) { WriteLocked(); },
                   [&](const effect::AskWitness& ask) {
                     if (port_ != nullptr) port_->witness().Ask(ask.request);
                   },
                   [&](const effect::Lead&) {
                     LogWarning(
                         "the coordinator {} has been silent for {}, and the witness has elected "
                         "this one, with term {}",
                         options_.peer,
                         absl::FormatDuration(absl::Trunc(Now() - heard_, kLookAtClock)),
                         seat_.record().term);
                     if (context_ != nullptr) context_->TryCancel();
                     asked_ = {};  // what it needs next may be asked at once
                   },
                   [](const auto&) {},
               },
               effect);
  }
  // The waits for the witness are over, and the record says so.
  if (seat_.leads() && seat_.alone() && written_) alone_ = true;
}

void Follower::WriteLocked() {
  record_.seat = seat_.record();
  const Status status = WriteLeadership(options_.state_dir, record_);
  written_ = status.ok();
  if (!status.ok()) LogError("{}", Message(status));
}

}  // namespace longhaul::coordinator
