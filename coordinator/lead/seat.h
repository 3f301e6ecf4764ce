// One of two coordinators that keep the same records: who of them leads, and when a change is
// committed. The same class is a follower, a candidate and a leader. Pure: it has no clock, no
// threads and no I/O. The caller decides when to ask for what, passes on what the other coordinator
// and the witness say, and carries out the effects, in their order.
//
// Rules, and why two leaders never commit different changes:
// - A leader was elected by the witness, or by the other seat, which had nothing that the leader
//   lacked, or its own record says that it alone is in sync. Each election has a greater term than
//   all before, and than all for which its seat has asked before.
// - A seat that elects the other one gives way: it is in sync no more, and does not ask the witness
//   before the leader says that it is in sync again. So the leader is alone at once.
// - A change is stored by every seat in sync before it is committed. A leader goes on alone only
//   after the witness has agreed, and then nobody else can be elected.
// - A follower in sync whose store lacks a committed change has lost it: an older image of its disk
//   was put back. The leader goes on alone before it sends what is missing. Else the follower could
//   come up to what the witness has heard of, and be elected without the rest.
// - A term begins with a change. A leader acts only after that change is committed.
//
//   Seat seat(record, applied, tail);
//   seat.AskWitness(NewTenure());
//   for (const Effect& effect : seat.TakeEffects()) ...
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "coordinator/lead/history.h"
#include "proto/witness/rules.h"

namespace longhaul::coordinator {

// What a seat must not forget.
struct SeatRecord {
  std::string seat;   // its id
  std::string other;  // the id of the other seat; empty: none is known
  uint64_t term = 0;  // the greatest that this seat led, followed or voted for
  // Seats that have every committed change, as far as this seat knows; in ascending order. A seat
  // that never led has an empty set. A seat that gave way has the other one alone.
  std::vector<std::string> in_sync;
  uint64_t asked = 0;  // the greatest term for which this seat asked to be elected
  // The other seat's id, if that has elected this one and the witness does not know yet.
  std::string voter;

  bool operator==(const SeatRecord&) const = default;
};

// ---- What two seats tell each other.
namespace seat_message {
struct Vote {  // asks the other seat to elect the sender
  uint64_t term = 0;
  Tenure tenure;
  std::string seat;
  History history;
};
struct Voted {
  uint64_t term = 0;
  Tenure tenure;
  std::string seat;  // of the voter
  bool granted = false;
  uint64_t newest = 0;  // the greatest term that the voter knows
};
// The leader's changes behind `before`, oldest first. `committed`: number of the newest committed
// one; an idle leader repeats it without rows.
struct Rows {
  uint64_t term = 0;
  Tenure tenure;
  std::string seat;        // the leader's
  bool gives_way = false;  // the follower must not be elected before it is in sync
  bool in_sync = false;    // whoever has these changes is in sync
  History before;
  std::vector<History> rows;
  uint64_t committed = 0;
};
struct Logged {  // the follower has stored all changes up to this one
  uint64_t term = 0;
  Tenure tenure;
  History history;
};
struct Lacks {  // the follower lacks `before`: send from `logged`, or from `applied`, or everything
  uint64_t term = 0;
  Tenure tenure;
  std::string seat;  // the follower's
  History logged, applied;
};
struct Newer {  // the sender knows a greater term, and ignored a message of `term`
  uint64_t term = 0;
  uint64_t newest = 0;
};
}  // namespace seat_message
using SeatMessage = std::variant<seat_message::Vote, seat_message::Voted, seat_message::Rows,
                                 seat_message::Logged, seat_message::Lacks, seat_message::Newer>;

// ---- What the caller does for a seat.
namespace effect {
struct Store {};  // store record() before the later effects
struct AskWitness {
  witness::Request request;
};
struct Say {  // to the other seat
  SeatMessage message;
};
// It leads from now on: propose the change that begins the term. Act when that is committed.
struct Lead {};
struct Send {  // send the other seat, if it follows, this proposed change
  History change;
};
struct Commit {  // commit the changes up to this one
  History change;
};
// It leads no more. The proposed change, if there is one, is rolled back.
struct StepDown {
  uint64_t term = 0;    // the newer one
  uint64_t logged = 0;  // number of the newest change that stays in the log
};
// Leader: the follower's store ends with these histories, so send what it lacks, or a whole copy.
struct Resend {
  History logged, applied;
};
struct Log {  // follower: store this change behind the newest one
  History change;
};
struct CutTail {  // follower: forget stored changes with greater numbers, which are not applied
  uint64_t number = 0;
};
struct Apply {  // follower: apply stored changes up to this number
  uint64_t number = 0;
};
}  // namespace effect
using Effect = std::variant<effect::Store, effect::AskWitness, effect::Say, effect::Lead,
                            effect::Send, effect::Commit, effect::StepDown, effect::Resend,
                            effect::Log, effect::CutTail, effect::Apply>;

class Seat {
 public:
  // `applied`: the newest change that the store's tables have. `tail`: later ones that are stored
  // and not applied, oldest first; a leader may not have committed them.
  explicit Seat(SeatRecord record, History applied = {}, std::vector<History> tail = {});

  // ---- State
  bool leads() const { return leads_; }
  bool is_candidate() const { return candidate_.has_value(); }
  // Whether this seat needs neither the other seat nor the witness to commit.
  bool alone() const;
  bool in_sync_of_two() const { return record_.in_sync.size() > 1; }
  // It has elected the other seat, and that has not said yet that this one is in sync.
  bool gave_way() const;
  // Leader: whether its follower has to give way: the witness may take it for one in sync.
  bool needs_way() const { return alone() && !record_.voter.empty(); }
  // A request to go on alone waits for an answer.
  bool shrinks() const { return waits_for_.has_value(); }
  bool has_proposal() const { return proposed_; }
  const SeatRecord& record() const { return record_; }
  const Tenure& tenure() const { return tenure_; }
  History applied() const { return applied_; }
  History logged() const { return tail_.empty() ? applied_ : tail_.back(); }
  const std::vector<History>& tail() const { return tail_; }
  // What was asked for and what was voted for; for tests that compare states.
  std::string candidacy() const {
    std::string text;
    for (const std::optional<Candidacy>& one : {candidate_, granted_}) {
      text += one ? std::to_string(one->term) + one->tenure.value() + ";" : ";";
    }
    return text;
  }
  uint64_t ask() const { return ask_; }
  // Leader: the number up to which the follower has stored changes.
  uint64_t acknowledged() const { return acknowledged_; }

  // ---- To lead. `tenure`: 16 new random bytes. Do nothing while it leads. `above`: the new term
  // is greater than this one, too.
  //
  // After it gave way, AskWitness only asks whether the leader has said that this seat is in sync.
  void AskWitness(Tenure tenure, uint64_t above = 0);
  void AskOther(Tenure tenure, uint64_t above = 0);
  // False: others may have changes that this seat lacks, or may have been elected.
  bool LeadAlone(Tenure tenure, uint64_t above = 0);
  // A person demands it; committed changes may be lost.
  void Force(Tenure tenure, uint64_t term);

  // ---- A leader
  // Proposes the next change: its number is logged().number + 1. One change at a time.
  void Propose(History change);
  // Asks the witness to agree that this seat goes on alone.
  void Shrink();
  // The other seat has everything: from now on changes wait for it. False: not yet.
  bool Grow(const std::string& other);
  // Tells the witness again who leads, and who is in sync.
  void RemindWitness();
  // Returns what a witness that has no record yet is told: who leads, and who is in sync.
  witness::Introduce Introduction() const;
  // A new connection of the follower: what was said on the one before counts no longer.
  void ForgetFollower() { acknowledged_ = 0; }
  // Whether the follower `seat`, whose newest change is `logged`, may get what it lacks. False: it
  // has lost committed changes, or is not the one in sync, and this seat asks to go on alone first;
  // try again later.
  bool MayFeed(const std::string& seat, const History& logged);
  // From now on a vote that the other seat asks for is granted, though this seat leads, once no
  // proposed change is under way. Propose nothing meanwhile.
  void HandOver() { hands_over_ = leads_; }
  void KeepLead() { hands_over_ = false; }

  // ---- What others say
  // Any answer of the witness carries its record.
  void OnWitness(const witness::Record& record);
  void OnSeat(const SeatMessage& message);
  // Somebody trustworthy knows a newer term.
  void OnNewerTerm(uint64_t term);
  // Follower: the leader of this term begins to send, on a stream that keeps its order; the caller
  // logs and applies changes itself (SetStore). `gives_way`: as in Rows. False: this seat leads, or
  // knows a newer term.
  bool BeginToFollow(uint64_t term, const std::string& seat, bool gives_way = false);
  // Follower: its leader says that it is in sync.
  void OnInSync();
  // Where the store stands: for a follower whose caller logs and applies changes itself, or has
  // replaced the store, and for a leader before its first proposal.
  void SetStore(History applied, std::vector<History> tail = {});

  // The effects since the last call, in the order in which they must be carried out.
  std::vector<Effect> TakeEffects() { return std::exchange(effects_, {}); }

 private:
  struct Candidacy {
    uint64_t term = 0;
    Tenure tenure;
    friend bool operator==(const Candidacy&, const Candidacy&) = default;
  };
  void Emit(Effect effect) { effects_.push_back(std::move(effect)); }
  uint64_t NextTerm(uint64_t above) const;
  void BeginCandidacy(Tenure tenure, uint64_t above);
  void BecomeLeader(uint64_t term, Tenure tenure, std::vector<std::string> in_sync,
                    std::string voter);
  void GiveWay(const std::string& seat);
  void AskToBeAlone();
  void CommitIfRipe();
  void StepDown(uint64_t term);
  void On(const seat_message::Vote& vote);
  void On(const seat_message::Voted& voted);
  void On(const seat_message::Rows& rows);
  void On(const seat_message::Logged& logged);
  void On(const seat_message::Lacks& lacks);
  void On(const seat_message::Newer& newer);

  SeatRecord record_;
  History applied_;
  std::vector<History> tail_;
  bool leads_ = false;
  bool hands_over_ = false;
  Tenure tenure_;                       // leader: its own
  std::optional<Candidacy> candidate_;  // what was asked for last
  std::optional<Candidacy> granted_;    // the newest vote that this process gave
  bool proposed_ = false;               // the last of tail_ is this leader's, and is not committed
  uint64_t acknowledged_ = 0;
  uint64_t ask_ = 0;                   // number of the newest SetInSync
  std::optional<uint64_t> waits_for_;  // the ask that makes it alone
  std::vector<Effect> effects_;
};

}  // namespace longhaul::coordinator
