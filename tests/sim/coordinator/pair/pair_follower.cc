// The part of PairSeat that follows: coordinator/standby/follower.cc and campaign.cc.
#include <algorithm>
#include <utility>

#include "tests/sim/coordinator/pair/pair_seat.h"
#include "tests/sim/coordinator/pair/pair_times.h"

namespace longhaul::coordinator::sim {

void PairSeat::Follow() {
  mode_ = Mode::kFollows;
  // What was alone in sync is replaced by the other coordinator's records.
  if (disk_.led && seat_->alone()) {
    disk_.record.in_sync.clear();
    disk_.led = false;
    seat_ = std::make_unique<Seat>(disk_.record);
  }
  stream_ = 0;
  follows_ = dialled_ = written_ = elected_ = false;
  has_store_ = !disk_.log.empty();
  committed_ = verified_ = 0;
  witness_seat_.clear();
  heard_ = LocalNow();
  asked_ = asked_other_ = dialled_at_ = witness_heard_ = MonoTime();
  witness_refuses_ = false;
  NoteStore();
}

void PairSeat::TickAsFollower() {
  const MonoTime now = LocalNow();
  // A leader that is silent holds no lease.
  if (follows_ && now - heard_ >= kLease) EndStream();
  if (stream_ != 0 && !follows_ && now - dialled_at_ >= kFollowerPatience) EndStream();
  Campaign();
  if (mode_ != Mode::kFollows) return;
  if (stream_ != 0 || seat_->leads() || now - dialled_at_ < kDialAgain) return;
  AskOther();
  if (mode_ == Mode::kFollows && !seat_->leads()) Dial();
}

void PairSeat::AskOther() {
  const MonoTime now = LocalNow();
  // The witness elects no seat that gave way. It refuses one that is not in sync, and the other
  // seat, which is, may have given way.
  const bool needs_it = seat_->gave_way() || witness_refuses_ ||
                        (!reaches_witness_() && now - witness_heard_ >= kLease);
  const bool may = dialled_ && has_store_ && needs_it && now - heard_ >= kLease &&
                   now - asked_other_ >= kFollowerPatience;
  if (!may) return;
  asked_other_ = now;
  seat_->AskOther(NewTenure());
  Carry();
}

void PairSeat::OnVote(const seat_message::Vote& vote) {
  const std::string& other = seat_->record().other;
  const bool hears_leader = follows_ && LocalNow() - heard_ < kLease;
  if (mode_ != Mode::kFollows || !has_store_ || hears_leader ||
      (!other.empty() && vote.seat != other)) {
    return;
  }
  const Seat before = *seat_;
  const uint64_t process = process_;
  seat_->OnSeat(vote);
  Carry();
  // A vote that a full disk refused is not given.
  if (process == process_ && todo_.empty() && !written_) *seat_ = before;
}

void PairSeat::Campaign() {
  const MonoTime now = LocalNow();
  const bool has_witness = reaches_witness_() && HasWitness();
  if (seat_->leads()) {
    const uint64_t process = process_;
    // The witness elected it, and went before it agreed that this one is alone.
    if (!seat_->alone() && !reaches_witness_() && now - witness_heard_ >= kLease) {
      pair_->Saw("an elected follower gives up");
      seat_->OnNewerTerm(seat_->record().term + 1);
      return Carry();
    }
    if (elected_ || now - asked_ < kAskAgain / 2) return;
    asked_ = now;
    // A full disk may have refused the record that says that it leads.
    if (!written_) StoreRecord();
    if (process != process_) return;
    if (has_witness) seat_->Shrink();
    return Carry();
  }
  if (!has_witness || !has_store_) return;
  const bool led_last = witness_seat_ == seat_->record().seat && !follows_ && dialled_;
  if (!led_last && now - heard_ < kLease) return;
  if (now - asked_ < kAskAgain) return;
  asked_ = now;
  seat_->AskWitness(NewTenure());
  Carry();
}

// ---- The stream --------------------------------------------------------------------

void PairSeat::Dial() {
  stream_ = ++pair_->last_stream;
  sent_ = received_ = 0;
  dialled_at_ = LocalNow();
  pair_message::Hello hello{.seat = name(), .term = seat_->record().term, .standing = {}};
  if (has_store_) hello.standing = standing();
  to_other_({.stream = stream_, .number = ++sent_, .body = std::move(hello)});
}

void PairSeat::EndStream() {
  if (stream_ == 0) return;
  to_other_({.stream = stream_, .number = ++sent_, .body = pair_message::Bye()});
  stream_ = 0;
  follows_ = false;
  dialled_ = true;
}

void PairSeat::TakeStream(const pair_message::Message& message) {
  if (stream_ == 0 || message.stream != stream_) return;
  if (std::holds_alternative<pair_message::Bye>(message.body)) {
    stream_ = 0;
    follows_ = false;
    dialled_ = true;
    return;
  }
  if (message.number != received_ + 1) return;
  received_ = message.number;
  // A seat that leads follows nobody. What it has logged before counts.
  if (seat_->leads()) return EndStream();
  heard_ = LocalNow();
  if (const auto* begin = std::get_if<pair_message::Begin>(&message.body)) {
    TakeBegin(*begin);
  } else if (const auto* change = std::get_if<pair_message::Change>(&message.body)) {
    TakeChange(*change);
  } else if (const auto* beat = std::get_if<pair_message::Beat>(&message.body)) {
    committed_ = std::max(committed_, beat->committed);
    Apply();
    if (!beat->in_sync) return;
    seat_->OnInSync();
    Carry();
  }
}

void PairSeat::TakeBegin(const pair_message::Begin& begin) {
  if (!seat_->BeginToFollow(begin.term, begin.seat, begin.gives_way)) return EndStream();
  const uint64_t process = process_;
  disk_.led = false;
  follows_ = true;
  Carry();
  if (process != process_) return;
  committed_ = 0;
  verified_ = begin.resume_after ? *begin.resume_after : begin.newest.number;
  if (begin.resume_after) {
    const uint64_t after = *begin.resume_after;
    if (!has_store_ || after < disk_.applied || after > disk_.log.size()) {
      has_store_ = false;
      return EndStream();
    }
    pair_->Saw("a follower resumes");
    NoteStore();
    return SayLogged();
  }
  has_store_ = false;
  Write([this, begin] {
    pair_->Saw("a whole copy");
    timeline().Note("{} takes a copy of {} changes", name(), begin.copy->size());
    disk_.log = *begin.copy;
    disk_.applied = disk_.log.size();
    disk_.SyncAll();
    if (!disk_.log.empty()) pair_->lead.checker.Applied(name(), disk_.log.back());
    has_store_ = true;
    NoteStore();
    SayLogged();
  });
}

void PairSeat::TakeChange(const pair_message::Change& message) {
  if (!has_store_) return EndStream();
  const std::shared_ptr<const PairChange> change = pair_->changes.at(message.chain);
  const History history = change->named.history();
  // A leader commits a change of its own before it makes the next one.
  if (standing().logged().term == history.term) {
    committed_ = std::max(committed_, history.number - 1);
  }
  switch (FitOf(standing(), change->named)) {
    case Fit::kKnown:
      verified_ = std::max(verified_, history.number);
      return Apply();
    case Fit::kDiffers:
      has_store_ = false;
      return EndStream();
    case Fit::kGap:
      return EndStream();
    case Fit::kReplacesTail:
      pair_->Saw("a tail was replaced");
      break;
    case Fit::kNext:
      break;
  }
  Write([this, history, important = change->important] {
    if (history.number <= disk_.applied) {
      pair_->world->Violate("{} forgets change {}, and has applied {}", name(), history.number,
                            disk_.applied);
    }
    disk_.log.resize(history.number - 1);
    disk_.log.push_back({history, important});
    disk_.SyncAll();
    ApplyUpTo(committed_);
    verified_ = std::max(verified_, history.number);
    NoteStore();
    SayLogged();
  });
}

void PairSeat::Write(std::function<void()> written) {
  busy_ = true;
  const auto end = [this](const std::function<void()>& then) {
    busy_ = false;
    then();
    HandleInbox();
  };
  OnDisk([end, written = std::move(written)] { end(written); },
         [this, end] { end([this] { EndStream(); }); });
}

void PairSeat::Apply() {
  if (!has_store_ || disk_.applied >= disk_.log.size() || disk_.applied >= committed_) {
    NoteStore();
    return SayLogged();
  }
  Write([this] {
    ApplyUpTo(committed_);
    NoteStore();
    SayLogged();
  });
}

void PairSeat::ApplyUpTo(uint64_t committed) {
  while (disk_.applied < disk_.log.size() && disk_.applied < committed) {
    pair_->lead.checker.Applied(name(), disk_.log[disk_.applied]);
    ++disk_.applied;
  }
}

Standing PairSeat::standing() const {
  return {.applied = disk_.Applied(), .tail = disk_.Tail()};
}

void PairSeat::NoteStore() {
  if (has_store_) seat_->SetStore(disk_.Applied(), disk_.Tail());
}

// A tail of an older leader is not this leader's change, even if it has the same number.
void PairSeat::SayLogged() {
  if (stream_ == 0 || !has_store_ || !follows_) return;
  const uint64_t number = std::min<uint64_t>(std::max(disk_.applied, verified_), disk_.log.size());
  to_other_({.stream = stream_,
             .number = ++sent_,
             .body = pair_message::Logged{disk_.HistoryAt(number)}});
}

}  // namespace longhaul::coordinator::sim
