// Who reaches whom: when a worker comes, others try each of its addresses and it tries theirs.
// Pairs of which neither reaches the other are said, are not planned for over that transport, and
// are tried again.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/hash.h"
#include "coordinator/state/core.h"
#include "coordinator/state/text.h"

namespace longhaul::coordinator {
namespace {

constexpr uint32_t kProtocolWithReach = 3;
// So many others to each side, in the order in which workers become neighbours, try a worker that
// comes, and so many addresses of it. Where it has more, that none of these was reached says
// nothing.
constexpr size_t kPeersEachSide = 4;
constexpr int kMaxAddresses = 4;
constexpr absl::Duration kTryAgainAfter = absl::Seconds(30);

bool Answers(const Worker& worker) {
  return worker.session && worker.hello.protocol_max() >= kProtocolWithReach;
}

const v1::DataEndpoint* EndpointOf(const Worker& worker, const std::string& transport) {
  for (const v1::DataEndpoint& endpoint : worker.hello.endpoints()) {
    if (endpoint.transport() == transport) return &endpoint;
  }
  return nullptr;
}

// Of `all` those around `worker`, which is one of them; the last and the first are beside each
// other.
template <class Sorted>
std::vector<const Worker*> PeersOf(const Worker& worker, const Sorted& all) {
  std::vector<const Worker*> peers;
  auto after = all.find(&worker), before = after;
  for (size_t distance = 1; distance <= kPeersEachSide && distance < all.size(); ++distance) {
    if (++after == all.end()) after = all.begin();
    if (before == all.begin()) before = all.end();
    --before;
    for (const Worker* peer : {*after, *before}) {
      if (std::ranges::find(peers, peer) == peers.end()) peers.push_back(peer);
    }
  }
  return peers;
}

template <class Iterator>
struct Entries {
  Iterator first, last;
  Iterator begin() const { return first; }
  Iterator end() const { return last; }
  bool empty() const { return first == last; }
};

// What `map` has of one worker to another, over any transport.
template <class Map>
auto Between(Map& map, const WorkerId& from, const WorkerId& to) {
  const auto begin = map.lower_bound({from, to, ""});
  auto end = begin;
  while (end != map.end() && end->first.from == from && end->first.to == to) ++end;
  return Entries<decltype(end)>{begin, end};
}

}  // namespace

void Core::CheckReach(const Worker& worker) {
  if (!Answers(worker)) return;
  for (const Worker* other : PeersOf(worker, connected_)) {
    if (!Answers(*other)) continue;
    for (const v1::DataEndpoint& endpoint : worker.hello.endpoints()) {
      for (const auto& [from, to] : {std::pair(other, &worker), std::pair(&worker, other)}) {
        const ReachKey key{from->id, to->id, endpoint.transport()};
        if (!reach_.contains(key)) TryReach(key);
      }
    }
  }
  for (const auto& [other, known] : reach_peers_[worker.id]) {
    if (!known.cut) continue;
    for (auto& [pair, cut] :
         Between(cut_pairs_, std::min(worker.id, other), std::max(worker.id, other))) {
      if (!cut.again_at) TryAgainAt(pair, cut, cut.at + kTryAgainAfter);
    }
  }
}

void Core::SayUntried(const Worker& worker) {
  if (!Answers(worker)) return;
  for (const v1::DataEndpoint& endpoint : worker.hello.endpoints()) {
    if (endpoint.addresses_size() <= kMaxAddresses) continue;
    std::string untried;
    for (int i = kMaxAddresses; i < endpoint.addresses_size(); ++i) {
      untried += (untried.empty() ? "" : " ") + endpoint.addresses(i);
    }
    Log(nullptr, "worker",
        fmt::format(
            "worker {} has {} addresses for {}, of which others try the first {}; whether it is "
            "reached at {} is not known: name those first that others reach (--advertise)",
            Label(worker), endpoint.addresses_size(), endpoint.transport(), kMaxAddresses,
            Quoted(untried)));
  }
}

void Core::TryReach(const ReachKey& key) {
  const Worker& from = *FindWorker(key.from);
  const Worker& to = *FindWorker(key.to);
  const v1::DataEndpoint* endpoint = EndpointOf(to, key.transport);
  const ReachCheckKey check_key{key.to, key.transport, key.from};
  if (reach_checks_of_.contains(check_key) || EndpointOf(from, key.transport) == nullptr ||
      endpoint == nullptr || endpoint->addresses().empty()) {
    return;
  }
  const uint64_t id = next_reach_check_++;
  ReachCheck& check = reach_checks_[id];
  reach_checks_of_[check_key] = id;
  reach_peers_[key.from].try_emplace(key.to);
  reach_peers_[key.to].try_emplace(key.from);
  check.key = key;
  const int count = std::min(endpoint->addresses_size(), kMaxAddresses);
  check.addresses.assign(endpoint->addresses().begin(), endpoint->addresses().begin() + count);
  check.until = ReachPatience();
  v1::WorkerCommand command;
  v1::TryReach& ask = *command.mutable_try_reach();
  ask.set_check(id);
  ask.set_transport(key.transport);
  ask.set_limit_seconds(absl::ToDoubleSeconds(options_.reach_limit));
  ask.set_link_secret(HmacSha256(options_.reach_secret, fmt::format("reach {}", id)));
  for (const std::string& address : check.addresses) ask.add_addresses(address);
  ask.set_peer_name(from.hello.name());
  Send(to, command);
  ask.set_peer_name(to.hello.name());
  ask.set_dial(true);
  Send(from, std::move(command));
}

void Core::OnReachTried(const Worker& worker, const v1::ReachTried& tried) {
  const auto found = reach_checks_.find(tried.check());
  if (found == reach_checks_.end() || found->second.key.from != worker.id) return;
  const ReachCheck check = found->second;
  if (tried.problems_size() != static_cast<int>(check.addresses.size())) return;
  EndReachCheck(found);
  NoteTriedAddresses(check, tried);
  const Worker& to = *FindWorker(check.key.to);
  const v1::DataEndpoint* endpoint = EndpointOf(to, check.key.transport);
  const bool all_tried = endpoint != nullptr && endpoint->addresses_size() == tried.problems_size();
  if (!all_tried && std::ranges::none_of(tried.problems(), &std::string::empty)) return;
  Reach& reach = reach_[check.key];
  reach = {.reached = false, .problem = "", .at = now_};
  for (int i = 0; i < tried.problems_size(); ++i) {
    const std::string& address = check.addresses[static_cast<size_t>(i)];
    reach.reached = reach.reached || tried.problems(i).empty();
    if (tried.problems(i).empty()) continue;
    reach.problem +=
        fmt::format("{}{} does not reach {} at {} ({})", reach.problem.empty() ? "" : ", ",
                    Label(worker), Label(to), Quoted(address), Quoted(tried.problems(i)));
  }
  ++sequence_;
  NotePair(check.key);
}

// Says when a pair cannot talk, and when it can again.
void Core::NotePair(ReachKey key) {
  // The same words, whoever answered last.
  if (NaturalLess(FindWorker(key.to)->hello.name(), FindWorker(key.from)->hello.name())) {
    std::swap(key.from, key.to);
  }
  const Worker& from = *FindWorker(key.from);
  const Worker& to = *FindWorker(key.to);
  const PairKey pair{std::min(key.from, key.to), std::max(key.from, key.to), key.transport};
  const auto there = reach_.find(key), back = reach_.find({key.to, key.from, key.transport});
  const auto is_decided = [&](const auto& found, const Worker& dialled) {
    const v1::DataEndpoint* endpoint = EndpointOf(dialled, key.transport);
    return found != reach_.end() || endpoint == nullptr || endpoint->addresses().empty();
  };
  const auto works = [&](const auto& found) {
    return found != reach_.end() && found->second.reached;
  };
  if (works(there) || works(back)) {
    if (const auto cut = cut_pairs_.find(pair); cut != cut_pairs_.end()) {
      TryAgainAt(pair, cut->second, std::nullopt);
      cut_pairs_.erase(cut);
      Log(nullptr, "worker",
          fmt::format("workers {} and {} can talk over {} now", Label(from), Label(to),
                      key.transport));
    }
    NotePairReach(key.from, key.to);
    return;
  }
  if (!is_decided(there, to) || !is_decided(back, from)) return;
  std::string problems;
  for (const auto& found : {there, back}) {
    if (found == reach_.end()) continue;
    problems += (problems.empty() ? "" : "; ") + found->second.problem;
  }
  const bool is_news = !cut_pairs_.contains(pair);
  CutPair& cut = cut_pairs_[pair];
  cut.problem = problems;
  cut.at = now_;
  TryAgainAt(pair, cut, now_ + kTryAgainAfter);
  NotePairReach(key.from, key.to);
  if (!is_news) return;
  Log(nullptr, "worker",
      fmt::format("workers {} and {} cannot talk over {}: {}", Label(from), Label(to),
                  key.transport, problems));
}

void Core::NoteTriedAddresses(const ReachCheck& check, const v1::ReachTried& tried) {
  for (size_t i = 0; i < check.addresses.size(); ++i) {
    const std::string& problem = tried.problems(static_cast<int>(i));
    TriedAddress& one = tried_addresses_[{check.key.to, check.key.transport, check.addresses[i]}];
    if (problem.empty()) {
      one.reached = true;
      one.tried_by.clear();
    } else if (!one.reached && !one.said) {
      one.tried_by.insert(check.key.from);
      one.problem = problem;
    }
  }
}

// Says when nobody reaches an address of a worker.
void Core::SayUnreached() {
  for (const auto& [id, transport] : std::exchange(ended_checks_, {})) {
    const Worker* to = FindWorker(id);
    const auto more = reach_checks_of_.lower_bound({id, transport, WorkerId()});
    const bool more_to_come = more != reach_checks_of_.end() && std::get<0>(more->first) == id &&
                              std::get<1>(more->first) == transport;
    if (to == nullptr || !to->session || more_to_come) continue;
    for (auto it = tried_addresses_.lower_bound({id, transport, ""});
         it != tried_addresses_.end() && std::get<0>(it->first) == id &&
         std::get<1>(it->first) == transport;
         ++it) {
      TriedAddress& one = it->second;
      if (one.reached || one.said || one.tried_by.empty()) continue;
      one.said = true;
      std::vector<std::string> names;
      for (const WorkerId& from : std::exchange(one.tried_by, {})) {
        names.push_back(Label(*FindWorker(from)));
      }
      std::ranges::sort(names, NaturalLess);
      Log(nullptr, "worker",
          fmt::format("nobody reaches worker {} at {} ({}), tried from {}: {}; look at "
                      "--advertise, port mapping and firewalls",
                      Label(*to), Quoted(std::get<2>(it->first)), transport, Join(names),
                      Quoted(one.problem)));
    }
  }
}

void Core::EndReachCheck(std::map<uint64_t, ReachCheck>::iterator check) {
  const ReachKey& key = check->second.key;
  ended_checks_.insert({key.to, key.transport});
  reach_checks_of_.erase({key.to, key.transport, key.from});
  reach_checks_.erase(check);
}

void Core::NotePairReach(const WorkerId& one, const WorkerId& other) {
  PairReach known;
  for (const auto& [from, to] : {std::pair(&one, &other), std::pair(&other, &one)}) {
    for (const auto& [key, reach] : Between(reach_, *from, *to)) {
      known.reached = known.reached || reach.reached;
    }
  }
  known.cut = !Between(cut_pairs_, std::min(one, other), std::max(one, other)).empty();
  reach_peers_[one][other] = reach_peers_[other][one] = known;
}

void Core::TryAgainAt(const PairKey& pair, CutPair& cut, std::optional<MonoTime> at) {
  if (cut.again_at) cut_again_.erase({*cut.again_at, pair});
  cut.again_at = at;
  if (at) cut_again_.insert({*at, pair});
}

// What was not answered stays unknown; pairs that could not talk are tried again.
void Core::CheckReachTimers() {
  while (!reach_checks_.empty() && now_ >= reach_checks_.begin()->second.until) {
    EndReachCheck(reach_checks_.begin());
  }
  while (!cut_again_.empty() && now_ >= cut_again_.begin()->first) {
    const PairKey pair = cut_again_.begin()->second;
    CutPair& cut = cut_pairs_.at(pair);
    const Worker* one = FindWorker(pair.from);
    const Worker* other = FindWorker(pair.to);
    const bool both = one != nullptr && other != nullptr && Answers(*one) && Answers(*other);
    TryAgainAt(pair, cut, both ? std::optional(now_ + kTryAgainAfter) : std::nullopt);
    if (!both) continue;
    cut.at = now_;
    TryReach({pair.from, pair.to, pair.transport});
    TryReach({pair.to, pair.from, pair.transport});
  }
  SayUnreached();
}

MonoTime Core::NextReachWake() const {
  MonoTime wake = MonoTime::max();
  if (!reach_checks_.empty()) wake = reach_checks_.begin()->second.until;
  if (!cut_again_.empty()) wake = std::min(wake, cut_again_.begin()->first);
  return wake;
}

void Core::ForgetReach(const WorkerId& id) {
  ForgetReachChecks(id);
  const auto forget_addresses = [&](const WorkerId& of, const auto& forget) {
    auto it = tried_addresses_.lower_bound({of, "", ""});
    while (it != tried_addresses_.end() && std::get<0>(it->first) == of) it = forget(it);
  };
  forget_addresses(id, [&](auto it) { return tried_addresses_.erase(it); });
  const auto peers = reach_peers_.extract(id);
  if (peers.empty()) return;
  for (const auto& [other, known] : peers.mapped()) {
    reach_peers_[other].erase(id);
    forget_addresses(other, [&](auto it) {
      it->second.tried_by.erase(id);
      return ++it;
    });
    for (const auto& [from, to] : {std::pair(&id, &other), std::pair(&other, &id)}) {
      const auto results = Between(reach_, *from, *to);
      reach_.erase(results.begin(), results.end());
      const auto cuts = Between(cut_pairs_, *from, *to);
      for (auto& [pair, cut] : cuts) TryAgainAt(pair, cut, std::nullopt);
      cut_pairs_.erase(cuts.begin(), cuts.end());
    }
  }
}

void Core::ForgetReachChecks(const WorkerId& id) {
  const auto peers = reach_peers_.find(id);
  if (peers == reach_peers_.end()) return;
  std::vector<uint64_t> checks;
  const auto collect = [&](const WorkerId& to, const auto& concerns) {
    for (auto it = reach_checks_of_.lower_bound({to, "", WorkerId()});
         it != reach_checks_of_.end() && std::get<0>(it->first) == to; ++it) {
      if (concerns(std::get<2>(it->first))) checks.push_back(it->second);
    }
  };
  collect(id, [](const WorkerId&) { return true; });
  for (const auto& [other, known] : peers->second) {
    collect(other, [&](const WorkerId& from) { return from == id; });
  }
  for (const uint64_t check : checks) EndReachCheck(reach_checks_.find(check));
}

void Core::AddReach(CandidateWorker* worker) const {
  const auto begin = reach_.lower_bound({worker->id, WorkerId(), ""});
  for (auto it = begin; it != reach_.end() && it->first.from == worker->id; ++it) {
    const auto& [key, reach] = *it;
    if (reach.reached) continue;
    for (const TransportKind kind : {TransportKind::kUcx, TransportKind::kGrpc}) {
      if (ToString(kind) == key.transport) worker->does_not_reach[{key.to, kind}] = reach.problem;
    }
  }
}

bool Core::IsTryingReach(const RunSpec& spec, const Worker& upper, const Worker& lower) const {
  const auto transport = LinkTransport(spec, CandidateOf(spec, upper), CandidateOf(spec, lower));
  if (!transport.ok()) return false;
  const std::string over(ToString(*transport));
  if (reach_checks_of_.contains({upper.id, over, lower.id})) return true;
  // The lower one dials unless it is known that it cannot: then it counts whether the other can.
  const auto known = reach_.find({lower.id, upper.id, over});
  const v1::DataEndpoint* endpoint = EndpointOf(upper, over);
  const bool dials = endpoint != nullptr && !endpoint->addresses().empty() &&
                     (known == reach_.end() || known->second.reached);
  return !dials && reach_checks_of_.contains({lower.id, over, upper.id});
}

bool Core::IsTryingReach(const Draft& draft) const {
  for (size_t i = 0; i + 1 < draft.workers.size(); ++i) {
    if (IsTryingReach(draft.spec, *FindWorker(draft.workers[i].id),
                      *FindWorker(draft.workers[i + 1].id))) {
      return true;
    }
  }
  return false;
}

MonoTime Core::ReachPatience() const {
  return now_ + options_.reach_limit + kAnswerPatience;
}

void Core::RenderReach(const Worker& worker, MonoTime now, v1::WorkerStatus* status) const {
  const auto peers = reach_peers_.find(worker.id);
  if (!worker.session || peers == reach_peers_.end()) return;
  uint32_t talks = 0;
  std::set<const Worker*, NameLess> cut;
  for (const auto& [id, known] : peers->second) {
    if (!known.cut && !known.reached) continue;
    const Worker* other = FindWorker(id);
    if (other == nullptr || !other->session) continue;
    if (known.cut) {
      cut.insert(other);
    } else {
      ++talks;
    }
  }
  for (const Worker* other : cut) {
    for (const auto& [pair, why] :
         Between(cut_pairs_, std::min(worker.id, other->id), std::max(worker.id, other->id))) {
      v1::UnreachableWorker& one = *status->add_cannot_talk_to();
      one.set_worker(other->hello.name());
      one.set_transport(pair.transport);
      one.set_problem(why.problem);
      one.set_age_seconds(absl::ToDoubleSeconds(now - why.at - asleep_));
    }
  }
  status->set_can_talk_to(talks);
}

}  // namespace longhaul::coordinator
