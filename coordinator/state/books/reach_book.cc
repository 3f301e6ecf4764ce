#include "coordinator/state/books/reach_book.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "coordinator/state/text.h"

namespace longhaul::coordinator {
namespace {

// A worker that comes and this many others on either side of it, in the order of names, try each
// other: those may become neighbours in a pipeline.
constexpr size_t kPeersEachSide = 4;
// Others try this many addresses of a worker. Where it has more, failing to reach those does not
// condemn it.
constexpr size_t kMostAddresses = 4;
constexpr absl::Duration kTryAgainAfter = absl::Seconds(30);
// More workers than this, none of them later than the gap after the one before, are a crowd. While
// it comes, the coordinator has enough to do, and neighbours change with each worker.
constexpr size_t kCrowd = 64;
constexpr absl::Duration kCrowdGap = absl::Seconds(2);
constexpr absl::Duration kLongestCrowd = absl::Seconds(20);

template <class Iterator>
struct Entries {
  Iterator first, last;
  Iterator begin() const { return first; }
  Iterator end() const { return last; }
  bool empty() const { return first == last; }
};

// The entries of `map` from one worker to another, over any transport.
template <class Map>
auto Between(Map& map, const WorkerId& from, const WorkerId& to) {
  const auto begin = map.lower_bound({from, to, ""});
  auto end = begin;
  while (end != map.end() && end->first.from == from && end->first.to == to) ++end;
  return Entries<decltype(end)>{begin, end};
}

// The entries of `map` of a pair.
template <class Map>
auto OfPair(Map& map, const WorkerId& one, const WorkerId& other) {
  return Between(map, std::min(one, other), std::max(one, other));
}

}  // namespace

ReachBook::ReachBook(Options options)
    : options_(std::move(options)), checks_(options_.first_check) {}

// ---- Facts -------------------------------------------------------------------------

ReachBook::News ReachBook::Come(const Worker& worker, MonoTime now) {
  News news;
  Leave(worker.id);  // the session that this one replaces
  if (workers_.Connect(worker)) SayUntried(worker, &news);
  if (now >= last_came_ + kCrowdGap) {
    crowd_ = 0;
    crowd_began_ = now;
  }
  last_came_ = now;
  if (++crowd_ > kCrowd) {
    later_.insert(worker.id);
  } else {
    AskPeersOf(worker, now, &news);
  }
  for (const auto& [other, relation] : relations_[worker.id]) {
    if (!relation.is_cut) continue;
    for (auto& [pair, cut] : OfPair(cuts_, worker.id, other)) {
      if (!cut.again_at) TryAgainAt(pair, cut, cut.at + kTryAgainAfter);
    }
  }
  return news;
}

void ReachBook::AskPeersOf(const Worker& worker, MonoTime now, News* news) {
  for (const WorkerId& peer : workers_.PeersOf(worker, kPeersEachSide)) {
    for (const Endpoint& endpoint : worker.endpoints) {
      for (const auto& [from, to] : {std::pair(peer, worker.id), std::pair(worker.id, peer)}) {
        const Key key{from, to, endpoint.transport};
        if (!results_.contains(key)) Ask(key, now, news);
      }
    }
  }
}

MonoTime ReachBook::CrowdEnds() const {
  if (later_.empty()) return MonoTime::max();
  return std::min(last_came_ + kCrowdGap, crowd_began_ + kLongestCrowd);
}

void ReachBook::Leave(const WorkerId& id) {
  later_.erase(id);
  checks_.EndOf(id);
  workers_.Disconnect(id);
}

void ReachBook::Forget(const WorkerId& id) {
  Leave(id);
  workers_.Forget(id);
  addresses_.Forget(id);
  const auto relations = relations_.extract(id);
  if (relations.empty()) return;
  for (const auto& [other, relation] : relations.mapped()) {
    relations_[other].erase(id);
    addresses_.ForgetDials(id, other);
    for (const auto& [from, to] : {std::pair(id, other), std::pair(other, id)}) {
      const auto results = Between(results_, from, to);
      results_.erase(results.begin(), results.end());
    }
    const auto cuts = OfPair(cuts_, id, other);
    for (auto& [pair, cut] : cuts) TryAgainAt(pair, cut, std::nullopt);
    cuts_.erase(cuts.begin(), cuts.end());
  }
}

ReachBook::News ReachBook::Answer(const WorkerId& from, const v1::ReachTried& tried, MonoTime now) {
  News news;
  const ReachCheck* found = checks_.Find(tried.check());
  if (found == nullptr || found->key.from != from) return news;
  const ReachCheck check = *found;
  if (tried.problems_size() != static_cast<int>(check.addresses.size())) return news;
  checks_.End(tried.check());
  for (size_t i = 0; i < check.addresses.size(); ++i) {
    addresses_.Note(check.key, check.addresses[i], tried.problems(static_cast<int>(i)));
  }
  const WorkerId& to = check.key.to;
  const Endpoint* endpoint = workers_.Get(to).FindEndpoint(check.key.transport);
  const bool all_tried =
      endpoint != nullptr && endpoint->addresses.size() == check.addresses.size();
  if (!all_tried && std::ranges::none_of(tried.problems(), &std::string::empty)) return news;
  Result& result = results_[check.key];
  result = {.is_reached = false, .problem = "", .at = now};
  for (size_t i = 0; i < check.addresses.size(); ++i) {
    const std::string& problem = tried.problems(static_cast<int>(i));
    result.is_reached = result.is_reached || problem.empty();
    if (problem.empty()) continue;
    result.problem +=
        fmt::format("{}{} does not reach {} at {} ({})", result.problem.empty() ? "" : ", ",
                    Label(from), Label(to), Quoted(check.addresses[i]), Quoted(problem));
  }
  news.has_changed = true;
  NotePair(check.key, now, &news);
  return news;
}

ReachBook::News ReachBook::PassTime(MonoTime now) {
  News news;
  // A question without an answer leaves unknown what it asked.
  checks_.EndLate(now);
  if (now >= CrowdEnds()) {
    crowd_ = 0;
    crowd_began_ = now;
    for (const WorkerId& id : std::exchange(later_, {})) AskPeersOf(workers_.Get(id), now, &news);
  }
  while (!cuts_by_time_.empty() && now >= cuts_by_time_.begin()->first) {
    const Key pair = cuts_by_time_.begin()->second;
    Cut& cut = cuts_.at(pair);
    const bool both = workers_.IsConnected(pair.from) && workers_.IsConnected(pair.to);
    TryAgainAt(pair, cut, both ? std::optional(now + kTryAgainAfter) : std::nullopt);
    if (!both) continue;
    cut.at = now;
    Ask({pair.from, pair.to, pair.transport}, now, &news);
    Ask({pair.to, pair.from, pair.transport}, now, &news);
  }
  SayUnreached(&news);
  return news;
}

void ReachBook::SayUntried(const Worker& worker, News* news) const {
  for (const Endpoint& endpoint : worker.endpoints) {
    if (endpoint.addresses.size() <= kMostAddresses) continue;
    std::string untried;
    for (size_t i = kMostAddresses; i < endpoint.addresses.size(); ++i) {
      untried += (untried.empty() ? "" : " ") + endpoint.addresses[i];
    }
    news->sentences.push_back(fmt::format(
        "worker {} has {} addresses for {}, of which others try the first {}; whether it is "
        "reached at {} is not known: name those first that others reach (--advertise)",
        Label(worker.id), endpoint.addresses.size(), endpoint.transport, kMostAddresses,
        Quoted(untried)));
  }
}

// Nothing where the question is asked already, or where nobody can dial.
void ReachBook::Ask(const Key& key, MonoTime now, News* news) {
  const Worker &from = workers_.Get(key.from), &to = workers_.Get(key.to);
  if (checks_.IsUnderWay(key) || from.FindEndpoint(key.transport) == nullptr ||
      !to.IsDialled(key.transport)) {
    return;
  }
  relations_[key.from].try_emplace(key.to);
  relations_[key.to].try_emplace(key.from);
  const std::vector<std::string>& all = to.FindEndpoint(key.transport)->addresses;
  const std::vector<std::string> addresses(
      all.begin(), all.begin() + static_cast<ptrdiff_t>(std::min(all.size(), kMostAddresses)));
  const uint64_t id =
      checks_.Begin({.key = key, .addresses = addresses, .until = now + options_.patience});
  news->questions.push_back(
      {.check = id,
       .dialler = key.from,
       .dialled = key.to,
       .transport = key.transport,
       .addresses = addresses,
       .link_secret = HmacSha256(options_.secret, fmt::format("reach {}", id))});
}

// Says when a pair is cut off, and when it no longer is.
void ReachBook::NotePair(Key key, MonoTime now, News* news) {
  // The sentence is the same whoever of both answered last.
  if (NaturalLess(workers_.Get(key.to).name, workers_.Get(key.from).name))
    std::swap(key.from, key.to);
  const Key pair{std::min(key.from, key.to), std::max(key.from, key.to), key.transport};
  const auto there = results_.find(key), back = results_.find({key.to, key.from, key.transport});
  const auto is_decided = [&](const auto& found, const WorkerId& dialled) {
    return found != results_.end() || !workers_.Get(dialled).IsDialled(key.transport);
  };
  const auto works = [&](const auto& found) {
    return found != results_.end() && found->second.is_reached;
  };
  if (works(there) || works(back)) {
    if (const auto cut = cuts_.find(pair); cut != cuts_.end()) {
      TryAgainAt(pair, cut->second, std::nullopt);
      cuts_.erase(cut);
      news->sentences.push_back(fmt::format("workers {} and {} can talk over {} now",
                                            Label(key.from), Label(key.to), key.transport));
    }
    NoteRelation(key.from, key.to);
    return;
  }
  if (!is_decided(there, key.to) || !is_decided(back, key.from)) return;
  std::string problems;
  for (const auto& found : {there, back}) {
    if (found == results_.end()) continue;
    problems += (problems.empty() ? "" : "; ") + found->second.problem;
  }
  const bool is_news = !cuts_.contains(pair);
  Cut& cut = cuts_[pair];
  cut.problem = problems;
  cut.at = now;
  TryAgainAt(pair, cut, now + kTryAgainAfter);
  NoteRelation(key.from, key.to);
  if (!is_news) return;
  news->sentences.push_back(fmt::format("workers {} and {} cannot talk over {}: {}",
                                        Label(key.from), Label(key.to), key.transport, problems));
}

void ReachBook::NoteRelation(const WorkerId& one, const WorkerId& other) {
  Relation relation;
  for (const auto& [from, to] : {std::pair(&one, &other), std::pair(&other, &one)}) {
    for (const auto& [key, result] : Between(results_, *from, *to)) {
      relation.is_reached = relation.is_reached || result.is_reached;
    }
  }
  relation.is_cut = !OfPair(cuts_, one, other).empty();
  relations_[one][other] = relations_[other][one] = relation;
}

// An address that nobody reaches is said when the last check of its worker and transport has ended.
void ReachBook::SayUnreached(News* news) {
  for (const auto& [id, transport] : checks_.TakeEnded()) {
    if (!workers_.IsConnected(id)) continue;
    for (const ReachAddresses::Unreached& one : addresses_.TakeUnreached(id, transport)) {
      std::vector<std::string> names;
      for (const WorkerId& from : one.tried_by) names.push_back(Label(from));
      std::ranges::sort(names, NaturalLess);
      news->sentences.push_back(
          fmt::format("nobody reaches worker {} at {} ({}), tried from {}: {}; look at "
                      "--advertise, port mapping and firewalls",
                      Label(id), Quoted(one.address), transport, Join(names), Quoted(one.problem)));
    }
  }
}

void ReachBook::TryAgainAt(const Key& pair, Cut& cut, std::optional<MonoTime> at) {
  if (cut.again_at) cuts_by_time_.erase({*cut.again_at, pair});
  cut.again_at = at;
  if (at) cuts_by_time_.insert({*at, pair});
}

// ---- What is known -----------------------------------------------------------------

MonoTime ReachBook::NextWake() const {
  MonoTime wake = checks_.NextWake();
  if (!cuts_by_time_.empty()) wake = std::min(wake, cuts_by_time_.begin()->first);
  return std::min(wake, CrowdEnds());
}

bool ReachBook::IsToBeAsked(const Key& key) const {
  if (checks_.IsUnderWay(key)) return true;
  const Worker* const dialled = workers_.Find(key.to);
  return (later_.contains(key.from) || later_.contains(key.to)) && !results_.contains(key) &&
         dialled != nullptr && dialled->IsDialled(key.transport);
}

bool ReachBook::IsAsking(const WorkerId& upper, const WorkerId& lower,
                         const std::string& transport) const {
  if (IsToBeAsked({lower, upper, transport})) return true;
  const auto known = results_.find({lower, upper, transport});
  const Worker* dialled = workers_.Find(upper);
  const bool lower_dials = dialled != nullptr && dialled->IsDialled(transport) &&
                           (known == results_.end() || known->second.is_reached);
  return !lower_dials && IsToBeAsked({upper, lower, transport});
}

std::vector<ReachBook::Failure> ReachBook::FailuresOf(const WorkerId& from) const {
  std::vector<Failure> failures;
  for (auto it = results_.lower_bound({from, WorkerId(), ""});
       it != results_.end() && it->first.from == from; ++it) {
    const auto& [key, result] = *it;
    if (!result.is_reached) failures.push_back({key.to, key.transport, result.problem});
  }
  return failures;
}

ReachBook::Standing ReachBook::StandingOf(const WorkerId& id) const {
  Standing standing;
  const auto relations = relations_.find(id);
  if (!workers_.IsConnected(id) || relations == relations_.end()) return standing;
  std::set<ReachRing::Place> cut_off;
  for (const auto& [other, relation] : relations->second) {
    if (!workers_.IsConnected(other)) continue;
    if (relation.is_cut) {
      cut_off.insert({workers_.Get(other).name, other});
    } else if (relation.is_reached) {
      ++standing.talks_to;
    }
  }
  for (const ReachRing::Place& other : cut_off) {
    for (const auto& [pair, cut] : OfPair(cuts_, id, other.id)) {
      standing.cut_off.push_back({other.name, pair.transport, cut.problem, cut.at});
    }
  }
  return standing;
}

void ReachBook::CheckInvariants() const {
  checks_.CheckInvariants();
  LH_CHECK(cuts_by_time_.size() <= cuts_.size(), "{} pairs are cut off, {} of them are tried again",
           cuts_.size(), cuts_by_time_.size());
  for (const WorkerId& id : later_) {
    LH_CHECK(workers_.IsConnected(id), "worker {} is to try its peers, and is gone", id.value());
  }
}

}  // namespace longhaul::coordinator
