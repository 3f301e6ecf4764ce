#include "coordinator/lead/seat.h"

#include <algorithm>

#include "base/overloaded.h"

namespace longhaul::coordinator {

Seat::Seat(SeatRecord record, History applied, std::vector<History> tail)
    : record_(std::move(record)), applied_(applied), tail_(std::move(tail)) {}

bool Seat::alone() const {
  return record_.in_sync.size() == 1 && record_.in_sync.front() == record_.seat;
}

bool Seat::gave_way() const {
  return !record_.in_sync.empty() &&
         std::ranges::find(record_.in_sync, record_.seat) == record_.in_sync.end();
}

// ---- To lead -----------------------------------------------------------------------

uint64_t Seat::NextTerm(uint64_t above) const {
  return std::max({record_.term, record_.asked, above}) + 1;
}

// The term is stored before anybody is asked. A vote is then for a term above it, so the answer to
// an old request never counts for more than a vote that was given since.
void Seat::BeginCandidacy(Tenure tenure, uint64_t above) {
  candidate_ = Candidacy{.term = NextTerm(above), .tenure = std::move(tenure)};
  record_.asked = candidate_->term;
  Emit(effect::Store{});
}

void Seat::AskWitness(Tenure tenure, uint64_t above) {
  if (leads_) return;
  if (gave_way()) {
    // The beat of nobody is refused, and every answer says who is in sync.
    Emit(effect::AskWitness{witness::Beat{.seat = record_.seat}});
    return;
  }
  BeginCandidacy(std::move(tenure), above);
  Emit(effect::AskWitness{witness::Elect{.term = candidate_->term,
                                         .tenure = candidate_->tenure,
                                         .seat = record_.seat,
                                         .number = logged().number,
                                         .voter = needs_way() ? record_.voter : ""}});
}

// Also after it gave way: whoever the other seat finds not to be behind has everything.
void Seat::AskOther(Tenure tenure, uint64_t above) {
  if (leads_) return;
  BeginCandidacy(std::move(tenure), above);
  Emit(effect::Say{seat_message::Vote{.term = candidate_->term,
                                      .tenure = candidate_->tenure,
                                      .seat = record_.seat,
                                      .history = logged()}});
}

bool Seat::LeadAlone(Tenure tenure, uint64_t above) {
  if (leads_ || !alone()) return false;
  BecomeLeader(NextTerm(above), std::move(tenure), record_.in_sync, record_.voter);
  RemindWitness();
  return true;
}

void Seat::Force(Tenure tenure, uint64_t term) {
  if (leads_) return;
  BecomeLeader(std::max(NextTerm(0), term), std::move(tenure), {record_.seat}, "");
}

void Seat::BecomeLeader(uint64_t term, Tenure tenure, std::vector<std::string> in_sync,
                        std::string voter) {
  leads_ = true;
  record_.term = term;
  record_.in_sync = std::move(in_sync);
  record_.voter = std::move(voter);
  tenure_ = std::move(tenure);
  candidate_.reset();
  waits_for_.reset();
  acknowledged_ = 0;
  Emit(effect::Store{});
  Emit(effect::Lead{});
}

void Seat::StepDown(uint64_t term) {
  const bool led = std::exchange(leads_, false);
  hands_over_ = false;
  // The transaction of the proposed change is rolled back. The other seat may have stored it.
  if (std::exchange(proposed_, false)) tail_.pop_back();
  candidate_.reset();
  tenure_ = Tenure();
  waits_for_.reset();
  acknowledged_ = 0;
  record_.term = std::max(record_.term, term);
  Emit(effect::Store{});
  if (led) Emit(effect::StepDown{.term = record_.term, .logged = logged().number});
}

// ---- A leader ----------------------------------------------------------------------

void Seat::Propose(History change) {
  if (!leads_ || proposed_) return;
  tail_.push_back(change);
  proposed_ = true;
  Emit(effect::Send{change});
  CommitIfRipe();
}

// An older leader's changes in the tail are committed with this leader's first one, never before.
void Seat::CommitIfRipe() {
  if (!leads_ || !proposed_) return;
  if (!alone() && acknowledged_ < logged().number) return;
  applied_ = tail_.back();
  tail_.clear();
  proposed_ = false;
  Emit(effect::Commit{applied_});
}

void Seat::Shrink() {
  if (!leads_ || alone()) return;
  waits_for_ = ++ask_;
  AskToBeAlone();
}

void Seat::AskToBeAlone() {
  Emit(effect::AskWitness{witness::SetInSync{
      .term = record_.term, .tenure = tenure_, .in_sync = {record_.seat}, .ask = *waits_for_}});
}

bool Seat::Grow(const std::string& other) {
  if (!leads_ || proposed_ || acknowledged_ < logged().number) return false;
  record_.other = other;
  record_.in_sync = {record_.seat, other};
  std::ranges::sort(record_.in_sync);
  waits_for_.reset();
  // The own record first: were the witness told first, a crash between could leave this seat with a
  // record that it is alone in sync, while the witness elects the other seat.
  Emit(effect::Store{});
  Emit(effect::AskWitness{witness::SetInSync{
      .term = record_.term, .tenure = tenure_, .in_sync = record_.in_sync, .ask = ++ask_}});
  return true;
}

bool Seat::MayFeed(const std::string& seat, const History& logged) {
  if (!leads_ || !in_sync_of_two()) return leads_;
  const bool counts = std::ranges::find(record_.in_sync, seat) != record_.in_sync.end();
  if (counts && !IsBehind(logged, applied_)) return true;
  acknowledged_ = 0;
  // The same request again, because it may have been lost. A new one each time would have no end.
  if (shrinks()) {
    AskToBeAlone();
  } else {
    Shrink();
  }
  return false;
}

void Seat::RemindWitness() {
  if (!leads_) return;
  // An older leader's changes count, too, though they are not committed before this one's first.
  const uint64_t stored = proposed_ ? logged().number - 1 : logged().number;
  Emit(effect::AskWitness{witness::Elect{.term = record_.term,
                                         .tenure = tenure_,
                                         .seat = record_.seat,
                                         .number = stored,
                                         .voter = record_.voter}});
  if (waits_for_) {
    Shrink();
  } else if (in_sync_of_two()) {
    Emit(effect::AskWitness{witness::SetInSync{
        .term = record_.term, .tenure = tenure_, .in_sync = record_.in_sync, .ask = ++ask_}});
  }
}

witness::Introduce Seat::Introduction() const {
  return {witness::Record{.id = "",
                          .term = record_.term,
                          .tenure = tenure_,
                          .seat = record_.seat,
                          .in_sync = record_.in_sync,
                          .ask = 0,
                          .seen = 0}};
}

// ---- What others say ---------------------------------------------------------------

void Seat::OnWitness(const witness::Record& record) {
  if (record.term == 0) return;
  if (record.seen > logged().number && (leads_ || alone())) {
    // An older copy of this store was put back, so what its record says counts no longer.
    record_.in_sync.clear();
    StepDown(record.term);
    return;
  }
  if (record.term < record_.term) return;
  if (!leads_ && candidate_ == Candidacy{record.term, record.tenure}) {
    BecomeLeader(record.term, record.tenure, record.in_sync, "");
    return;
  }
  if (leads_ && record.term == record_.term && record.tenure == tenure_) {
    if (!record_.voter.empty() && record.in_sync == record_.in_sync) {
      record_.voter.clear();
      Emit(effect::Store{});
    }
    if (waits_for_ != record.ask) {
      // The witness knows of another seat in sync, and this one has not asked for less.
      if (!alone() || record.ask < ask_ || record.in_sync == record_.in_sync) return;
      record_.in_sync = record.in_sync;
      StepDown(record.term);
      return;
    }
    record_.in_sync = record.in_sync;
    waits_for_.reset();
    Emit(effect::Store{});
    CommitIfRipe();
    return;
  }
  // Another process was elected. An own record that allows this seat to lead alone is an old copy
  // if the witness knows of another seat in sync.
  if (alone() && record.in_sync != record_.in_sync) {
    record_.in_sync = record.in_sync;
    if (gave_way()) record_.in_sync.clear();
  }
  if (record.term > record_.term || leads_) StepDown(record.term);
  // The leader to which this seat gave way has told the witness that it is in sync again.
  if (std::ranges::find(record.in_sync, record_.seat) != record.in_sync.end()) OnInSync();
}

void Seat::OnInSync() {
  if (!gave_way()) return;
  record_.in_sync.clear();
  Emit(effect::Store{});
}

void Seat::GiveWay(const std::string& seat) {
  record_.in_sync = {seat};
  record_.voter.clear();
}

void Seat::OnNewerTerm(uint64_t term) {
  if (term > record_.term) StepDown(term);
}

void Seat::OnSeat(const SeatMessage& message) {
  std::visit([this](const auto& one) { On(one); }, message);
}

void Seat::On(const seat_message::Vote& vote) {
  seat_message::Voted voted{.term = vote.term, .tenure = vote.tenure, .seat = record_.seat};
  const bool may_vote = leads_ ? hands_over_ && !proposed_ : !alone();
  if (may_vote && vote.term > std::max(record_.term, record_.asked) &&
      !IsBehind(vote.history, logged())) {
    record_.other = vote.seat;
    GiveWay(vote.seat);
    granted_ = Candidacy{.term = vote.term, .tenure = vote.tenure};
    // A late grant of what this seat asked for itself must find nobody.
    StepDown(vote.term);
    voted.granted = true;
  } else if (granted_ == Candidacy{vote.term, vote.tenure} && record_.term == vote.term &&
             gave_way()) {
    // The same request again. A refusal would have its sender ask for one more term.
    voted.granted = true;
  }
  voted.newest = std::max(record_.term, record_.asked);
  Emit(effect::Say{voted});
}

void Seat::On(const seat_message::Voted& voted) {
  if (!voted.granted) {
    // The next request is for a newer term. It follows at once if the term alone was too old: both
    // seats ask again and again, and each request makes the other one's next term too old.
    const bool mine = candidate_ == Candidacy{voted.term, voted.tenure};
    if (mine && !leads_ && voted.newest >= voted.term) AskOther(voted.tenure, voted.newest);
    return;
  }
  if (leads_ || candidate_ != Candidacy{voted.term, voted.tenure}) return;
  if (voted.term < record_.term) return;
  record_.other = voted.seat;
  BecomeLeader(voted.term, voted.tenure, {record_.seat}, voted.seat);
}

void Seat::On(const seat_message::Rows& rows) {
  if (rows.term < record_.term || (leads_ && rows.term == record_.term)) {
    Emit(effect::Say{seat_message::Newer{.term = rows.term, .newest = record_.term}});
    return;
  }
  if (rows.term > record_.term) StepDown(rows.term);
  if (candidate_ && candidate_->term <= rows.term) candidate_.reset();
  if (rows.gives_way && !gave_way()) {
    GiveWay(rows.seat);
    Emit(effect::Store{});
  }
  // Where the rows begin in the tail.
  size_t at = 0;
  if (!(rows.before == applied_)) {
    const auto found = std::ranges::find(tail_, rows.before);
    at = static_cast<size_t>(found - tail_.begin()) + 1;
    if (found == tail_.end()) {
      const auto same = std::ranges::find(rows.rows, applied_);
      if (same == rows.rows.end()) {
        // A late repetition of rows that are applied needs no answer.
        const History& last = rows.rows.empty() ? rows.before : rows.rows.back();
        if (last.term <= applied_.term && last.number <= applied_.number) return;
        Emit(effect::Say{seat_message::Lacks{.term = rows.term,
                                             .tenure = rows.tenure,
                                             .seat = record_.seat,
                                             .logged = logged(),
                                             .applied = applied_}});
        return;
      }
      seat_message::Rows rest = rows;
      rest.rows.erase(rest.rows.begin(), rest.rows.begin() + (same - rows.rows.begin()) + 1);
      rest.before = applied_;
      On(rest);
      return;
    }
  }
  for (const History& row : rows.rows) {
    if (at < tail_.size() && !(tail_[at] == row)) {
      tail_.resize(at);
      Emit(effect::CutTail{row.number - 1});
    }
    if (at == tail_.size()) {
      tail_.push_back(row);
      Emit(effect::Log{row});
    }
    ++at;
  }
  const History last = at == 0 ? applied_ : tail_[at - 1];
  const auto end = std::find_if(tail_.begin(), tail_.begin() + static_cast<ptrdiff_t>(at),
                                [&](const History& row) { return row.number > rows.committed; });
  if (end != tail_.begin()) {
    applied_ = *std::prev(end);
    tail_.erase(tail_.begin(), end);
    Emit(effect::Apply{applied_.number});
  }
  if (rows.in_sync) OnInSync();
  Emit(
      effect::Say{seat_message::Logged{.term = rows.term, .tenure = rows.tenure, .history = last}});
}

void Seat::On(const seat_message::Logged& logged) {
  if (!leads_ || logged.term != record_.term || logged.tenure != tenure_) return;
  // A follower may still have a change of an older leader with the same number.
  const History newest = this->logged();
  if (logged.history.number > newest.number) return;
  if (logged.history.number == newest.number && !(logged.history == newest)) return;
  acknowledged_ = std::max(acknowledged_, logged.history.number);
  CommitIfRipe();
}

void Seat::On(const seat_message::Lacks& lacks) {
  if (!leads_ || lacks.term != record_.term || lacks.tenure != tenure_) return;
  if (!MayFeed(lacks.seat, lacks.logged)) return;
  Emit(effect::Resend{.logged = lacks.logged, .applied = lacks.applied});
}

void Seat::On(const seat_message::Newer& newer) {
  OnNewerTerm(newer.newest);
}

bool Seat::BeginToFollow(uint64_t term, const std::string& seat, bool gives_way) {
  if (leads_ || term < record_.term) return false;
  if (candidate_ && candidate_->term <= term) candidate_.reset();
  // Its records may be replaced by the leader's from now on.
  if (alone()) record_.in_sync.clear();
  if (gives_way) GiveWay(seat);
  record_.term = term;
  record_.other = seat;
  Emit(effect::Store{});
  return true;
}

void Seat::SetStore(History applied, std::vector<History> tail) {
  if (proposed_) return;
  applied_ = applied;
  tail_ = std::move(tail);
}

}  // namespace longhaul::coordinator
