#include "transport/collective/core/roster.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/hash.h"
#include "base/printable.h"

namespace longhaul::collective::internal {
namespace {

// Words of one rank that wait for others': more than threads of one rank ever tell at once.
constexpr size_t kMaxWaitingWords = 16;

constexpr std::string_view kRubbish = "it sent its rendezvous what no member sends";

}  // namespace

const Roster::Rank* Roster::Find(Connection connection) const {
  const auto found = std::ranges::find_if(
      ranks_, [&](const Rank& rank) { return rank.joined && rank.connection == connection; });
  return found == ranks_.end() ? nullptr : &*found;
}

size_t Roster::PayloadLimit(Connection from) const {
  // A stranger gets no more memory than a join takes.
  return IsMember(from) ? std::max(kMaxTellBytes, kMaxReasonBytes) : kJoinBytes;
}

bool Roster::AllJoined() const {
  return !ranks_.empty() && std::ranges::all_of(ranks_, &Rank::joined);
}

bool Roster::Over() const {
  return end_ || (AllJoined() && std::ranges::all_of(ranks_, &Rank::gone));
}

void Roster::OnMessage(Connection from, int64_t process, const GroupMessage& message) {
  auto* const rank = const_cast<Rank*>(Find(from));
  if (rank == nullptr) {
    OnJoin(from, process, message);
    return;
  }
  if (end_ || rank->gone) return;
  switch (message.kind) {
    case MessageKind::kTell:
      OnTell(*rank, message.payload);
      return;
    case MessageKind::kEnd:
      End(fmt::format("rank {} failed: {}", NumberOf(*rank),
                      Printable(message.payload, kMaxReasonBytes)));
      return;
    case MessageKind::kGoodbye:
      OnGoodbye(*rank);
      return;
    default:
      Drop(from, kRubbish);
  }
}

void Roster::Drop(Connection connection, std::string_view why) {
  const Rank* const rank = Find(connection);
  if (rank != nullptr && !rank->gone) {
    End(fmt::format("rank {} failed: {}", NumberOf(*rank), why));
  }
  output_.push_back({connection, "", true});
}

void Roster::OnClosed(Connection from) {
  const Rank* const rank = Find(from);
  if (rank == nullptr || rank->gone) return;
  End(rank->process > 0
          ? fmt::format("rank {} was lost: its process {} closed its connection", NumberOf(*rank),
                        rank->process)
          : fmt::format("rank {} was lost: its connection was closed", NumberOf(*rank)));
}

void Roster::End(std::string reason) {
  // The first reason is the cause; connections that close because of it must not replace it.
  if (end_) return;
  end_ = std::move(reason);
  SendAll(Encode(MessageKind::kEnded, *end_));
}

Status Roster::CheckJoin(const JoinPayload& join) const {
  const auto [rank, size] = join.place;
  if (!ConstantTimeEqual(join.secret, secret_)) {
    return absl::InvalidArgumentError(
        "the secret in the id is not the rendezvous's; take the id as Rendezvous::id() gives it");
  }
  if (end_) return absl::AbortedError(*end_);
  if (size == 0 || size > kMaxRanks || rank >= size) {
    return InvalidArgument("a group has 1 to {} ranks, numbered from 0; got rank {} of {}",
                           kMaxRanks, rank, size);
  }
  if (!ranks_.empty() && ranks_.size() != size) {
    return InvalidArgument(
        "rank {} joins a group of {} ranks, but those before it one of {}; all ranks "
        "must name the same size",
        rank, size, ranks_.size());
  }
  if (!ranks_.empty() && ranks_[rank].joined) {
    return InvalidArgument("rank {} has joined already, with process {}; every rank joins once",
                           rank, ranks_[rank].process);
  }
  return absl::OkStatus();
}

void Roster::OnJoin(Connection from, int64_t process, const GroupMessage& message) {
  const auto join = message.kind == MessageKind::kJoin
                        ? DecodeJoin(message.payload)
                        : StatusOr<JoinPayload>(absl::InvalidArgumentError("no join"));
  if (!join.ok()) {
    Drop(from, kRubbish);
    return;
  }
  if (const Status refusal = CheckJoin(*join); !refusal.ok()) {
    output_.push_back({from, Encode(MessageKind::kRefused, EncodeRefused(refusal)), true});
    return;
  }
  if (ranks_.empty()) ranks_.resize(join->place.size);
  Rank& rank = ranks_[join->place.rank];
  rank.connection = from;
  rank.process = process;
  rank.joined = true;
  TellWhoCame(0);
  if (AllJoined()) SendAll(Encode(MessageKind::kJoined, ""));
}

void Roster::OnTell(Rank& rank, std::string word) {
  if (!AllJoined() || rank.words.size() >= kMaxWaitingWords) {
    Drop(rank.connection, kRubbish);
    return;
  }
  // Ranks may be rounds apart: words wait until every rank has told one.
  rank.words.push_back(std::move(word));
  TellWhoCame(++rank.rounds);
  for (const Rank& other : ranks_) {
    // A rank that left may have told its last word, but will tell no further one.
    if (other.gone && other.words.empty()) {
      End(fmt::format("rank {} left the group before rank {} did", NumberOf(other),
                      NumberOf(rank)));
      return;
    }
  }
  const auto has_word = [](const Rank& other) { return !other.words.empty(); };
  if (!std::ranges::all_of(ranks_, has_word)) return;
  std::vector<std::string> words;
  for (Rank& other : ranks_) {
    words.push_back(std::move(other.words.front()));
    other.words.pop_front();
  }
  SendAll(Encode(MessageKind::kTold, EncodeTold(words)));
}

void Roster::OnGoodbye(Rank& rank) {
  rank.gone = true;
  if (!AllJoined()) {
    End(fmt::format("rank {} left before all ranks had joined", NumberOf(rank)));
    return;
  }
  for (const Rank& other : ranks_) {
    if (other.rounds > rank.rounds) {
      End(fmt::format("rank {} left the group while rank {} waited for it", NumberOf(rank),
                      NumberOf(other)));
      return;
    }
  }
}

void Roster::TellWhoCame(uint64_t round) {
  CamePayload came{.round = round};
  for (const Rank& rank : ranks_) {
    if (rank.joined && rank.rounds >= round) came.ranks |= uint64_t{1} << NumberOf(rank);
  }
  SendAll(Encode(MessageKind::kCame, EncodeCame(came)));
}

void Roster::SendAll(const std::string& bytes) {
  for (const Rank& rank : ranks_) {
    if (rank.joined && !rank.gone) output_.push_back({rank.connection, bytes});
  }
}

}  // namespace longhaul::collective::internal
