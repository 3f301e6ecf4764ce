// What a leader hears of its witness, and which witness counts (leadership.h).
#include <utility>

#include "base/log.h"
#include "base/watchdog.h"
#include "coordinator/standby/leadership.h"
#include "proto/witness/wire.h"

namespace longhaul::coordinator {
namespace {

// How often to see whether the witness is still a member.
constexpr absl::Duration kMemberLook = absl::Seconds(5);

}  // namespace

Status Leadership::OnWitnessHello(const std::string& name, const witness::Record& record) {
  const std::lock_guard lock(mutex_);
  if (!failure_.ok()) return LeadsNoMore();
  if (witness_.id.empty()) {
    // The first one counts once the store says so.
    if (!record.in_sync.empty()) {
      return absl::FailedPreconditionError(
          "this witness was introduced to other coordinators, or to these before it was replaced; "
          "begin one with an empty state directory");
    }
    if (!new_witness_) new_witness_ = VotingWitness{.id = record.id, .name = name};
    changed_.notify_all();
    return absl::OkStatus();
  }
  if (witness_.id != record.id) {
    return FailedPrecondition(
        "the witness {} counts here, and this is another one, or its state directory was lost; "
        "revoke {} to let another one count: longhaul members revoke",
        witness_.name, witness_.name);
  }
  witness_heard_ = Now();
  witness_agrees_ = false;
  introduce_ = record.in_sync.empty();
  if (!introduce_) seat_.OnWitness(record);
  witness_asked_ = {};
  CarryLocked();
  return absl::OkStatus();
}

void Leadership::OnWitnessAnswer(const v1::WitnessSays::Answer& answer) {
  const witness::Record record = witness::FromProto(answer.record());
  const std::lock_guard lock(mutex_);
  if (!failure_.ok() || record.id != witness_.id) return;
  witness_heard_ = Now();
  introduce_ = record.in_sync.empty();
  if (introduce_) return;
  seat_.OnWitness(record);
  CarryLocked();
  if (!failure_.ok()) return;
  witness_agrees_ =
      record.term == term_ && record.tenure == tenure_ && record.in_sync == seat_.record().in_sync;
  if (witness_why_ != answer.why()) {
    witness_why_ = answer.why();
    if (!witness_why_.empty()) LogWarning("the witness {}: {}", witness_.name, witness_why_);
  }
}

void Leadership::ForgetRevokedWitness(std::unique_lock<std::mutex>* lock) {
  const MonoTime now = Now();
  if (witness_.id.empty() || !hooks_.is_member || !hooks_.set_witness) return;
  if (now - member_looked_ < kMemberLook) return;
  member_looked_ = now;
  const std::string name = witness_.name;
  lock->unlock();
  // Whoever changes the store or the members meanwhile may be waiting for the standby.
  Status forgotten;
  bool gone = false;
  {
    const WaitsForOthers waits;
    if (!hooks_.is_member(name)) forgotten = hooks_.set_witness(VotingWitness());
    gone = forgotten.ok() && !hooks_.is_member(name);
  }
  lock->lock();
  if (!forgotten.ok()) {
    LogWarning("the revoked witness {} still counts: {}", name, Message(forgotten));
  } else if (gone) {
    LogInfo("the witness {} was revoked, and counts no longer", name);
    witness_ = {};
    introduce_ = witness_agrees_ = false;
  }
}

void Leadership::AdoptWitness(std::unique_lock<std::mutex>* lock) {
  const VotingWitness witness = *std::exchange(new_witness_, std::nullopt);
  if (!witness_.id.empty() || !hooks_.set_witness) return;
  lock->unlock();
  const Status stored = AwaitOthers([&] { return hooks_.set_witness(witness); });
  lock->lock();
  if (!stored.ok()) {
    LogWarning("the witness {} does not count yet: {}", witness.name, Message(stored));
    return;
  }
  LogInfo("the witness {} counts from now on", witness.name);
  witness_ = witness;
  introduce_ = true;
  witness_asked_ = {};
}

// At the start, a record that says that this seat alone is in sync may be an older copy that
// somebody put back. The witness knows, and is given a lease to say so.
bool Leadership::WaitsForWitnessLocked(MonoTime now) const {
  return !hooks_.elected && !witness_.id.empty() && witness_heard_ == MonoTime() &&
         now - started_ < kLease;
}

}  // namespace longhaul::coordinator
