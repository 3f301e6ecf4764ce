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

// Of `all`, who are sorted, those around `worker`; the last and the first are beside each other.
std::vector<const Worker*> PeersOf(const Worker& worker, const std::vector<const Worker*>& all) {
  const auto at = static_cast<size_t>(std::ranges::find(all, &worker) - all.begin());
  std::vector<const Worker*> peers;
  for (size_t distance = 1; distance <= kPeersEachSide; ++distance) {
    for (const size_t index : {at + distance, at + all.size() - distance}) {
      if (distance >= all.size()) return peers;
      const Worker* peer = all[index % all.size()];
      if (std::ranges::find(peers, peer) == peers.end()) peers.push_back(peer);
    }
  }
  return peers;
}

}  // namespace

void Core::CheckReach(const Worker& worker) {
  if (!Answers(worker)) return;
  for (const Worker* other : PeersOf(worker, ConnectedByName())) {
    if (!Answers(*other)) continue;
    for (const v1::DataEndpoint& endpoint : worker.hello.endpoints()) {
      for (const auto& [from, to] : {std::pair(other, &worker), std::pair(&worker, other)}) {
        const ReachKey key{from->id, to->id, endpoint.transport()};
        if (!reach_.contains(key)) TryReach(key);
      }
    }
  }
}

void Core::TryReach(const ReachKey& key) {
  const Worker& from = *FindWorker(key.from);
  const Worker& to = *FindWorker(key.to);
  const v1::DataEndpoint* endpoint = EndpointOf(to, key.transport);
  const bool under_way = std::any_of(reach_checks_.begin(), reach_checks_.end(),
                                     [&](const auto& check) { return check.second.key == key; });
  if (under_way || EndpointOf(from, key.transport) == nullptr || endpoint == nullptr ||
      endpoint->addresses().empty()) {
    return;
  }
  const uint64_t id = next_reach_check_++;
  ReachCheck& check = reach_checks_[id];
  check.key = key;
  const int count = std::min(endpoint->addresses_size(), kMaxAddresses);
  check.addresses.assign(endpoint->addresses().begin(), endpoint->addresses().begin() + count);
  check.until = now_ + options_.reach_limit + kAnswerPatience;
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
  reach_checks_.erase(found);
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
  NoteTriedAddresses(check, tried);
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
    if (cut_pairs_.erase(pair) > 0) {
      Log(nullptr, "worker",
          fmt::format("workers {} and {} can talk over {} now", Label(from), Label(to),
                      key.transport));
    }
    return;
  }
  if (!is_decided(there, to) || !is_decided(back, from)) return;
  std::string problems;
  for (const auto& found : {there, back}) {
    if (found == reach_.end()) continue;
    problems += (problems.empty() ? "" : "; ") + found->second.problem;
  }
  const bool is_news = !cut_pairs_.contains(pair);
  cut_pairs_[pair] = {problems, now_};
  if (!is_news) return;
  Log(nullptr, "worker",
      fmt::format("workers {} and {} cannot talk over {}: {}", Label(from), Label(to),
                  key.transport, problems));
}

// Says when nobody reaches an address of a worker.
void Core::NoteTriedAddresses(const ReachCheck& check, const v1::ReachTried& tried) {
  const Worker& to = *FindWorker(check.key.to);
  for (size_t i = 0; i < check.addresses.size(); ++i) {
    const std::string& problem = tried.problems(static_cast<int>(i));
    TriedAddress& one = tried_addresses_[{to.id, check.addresses[i]}];
    if (problem.empty()) {
      one.reached = true;
    } else {
      one.tried_by.insert(FindWorker(check.key.from)->hello.name());
      one.problem = problem;
    }
    const bool more_to_come =
        std::any_of(reach_checks_.begin(), reach_checks_.end(), [&](const auto& other) {
          return other.second.key.to == to.id && other.second.key.transport == check.key.transport;
        });
    if (one.reached || one.said || more_to_come) continue;
    one.said = true;
    Log(nullptr, "worker",
        fmt::format("nobody reaches worker {} at {} ({}), tried from {}: {}; look at --advertise, "
                    "port mapping and firewalls",
                    Label(to), Quoted(check.addresses[i]), check.key.transport,
                    Join({one.tried_by.begin(), one.tried_by.end()}), Quoted(one.problem)));
  }
}

// What was not answered stays unknown; pairs that could not talk are tried again.
void Core::CheckReachTimers() {
  std::erase_if(reach_checks_, [&](const auto& check) { return now_ >= check.second.until; });
  for (auto& [pair, cut] : cut_pairs_) {
    if (now_ < cut.at + kTryAgainAfter) continue;
    const Worker* one = FindWorker(pair.from);
    const Worker* other = FindWorker(pair.to);
    if (one == nullptr || other == nullptr || !Answers(*one) || !Answers(*other)) continue;
    cut.at = now_;
    TryReach({pair.from, pair.to, pair.transport});
    TryReach({pair.to, pair.from, pair.transport});
  }
}

MonoTime Core::NextReachWake() const {
  MonoTime wake = MonoTime::max();
  for (const auto& [id, check] : reach_checks_) wake = std::min(wake, check.until);
  for (const auto& [pair, cut] : cut_pairs_) {
    const Worker* one = FindWorker(pair.from);
    const Worker* other = FindWorker(pair.to);
    if (one == nullptr || other == nullptr || !Answers(*one) || !Answers(*other)) continue;
    wake = std::min(wake, cut.at + kTryAgainAfter);
  }
  return wake;
}

void Core::ForgetReach(const WorkerId& id) {
  const auto concerns = [&](const auto& entry) {
    return entry.first.from == id || entry.first.to == id;
  };
  std::erase_if(reach_, concerns);
  std::erase_if(cut_pairs_, concerns);
  std::erase_if(tried_addresses_, [&](const auto& entry) { return entry.first.first == id; });
  ForgetReachChecks(id);
}

void Core::ForgetReachChecks(const WorkerId& id) {
  std::erase_if(reach_checks_, [&](const auto& check) {
    return check.second.key.from == id || check.second.key.to == id;
  });
}

void Core::AddReach(CandidateWorker* worker) const {
  for (const auto& [key, reach] : reach_) {
    if (key.from != worker->id || reach.reached) continue;
    for (const TransportKind kind : {TransportKind::kUcx, TransportKind::kGrpc}) {
      if (ToString(kind) == key.transport) worker->does_not_reach[{key.to, kind}] = reach.problem;
    }
  }
}

void Core::RenderReach(const Worker& worker, MonoTime now, v1::WorkerStatus* status) const {
  if (!worker.session) return;
  uint32_t talks = 0;
  for (const Worker* other : ConnectedByName()) {
    if (other->id == worker.id) continue;
    bool reached = false, cut = false;
    for (const v1::DataEndpoint& endpoint : worker.hello.endpoints()) {
      const std::string& transport = endpoint.transport();
      for (const ReachKey& key :
           {ReachKey{worker.id, other->id, transport}, ReachKey{other->id, worker.id, transport}}) {
        const auto found = reach_.find(key);
        reached = reached || (found != reach_.end() && found->second.reached);
      }
      const auto found = cut_pairs_.find(
          {std::min(worker.id, other->id), std::max(worker.id, other->id), transport});
      if (found == cut_pairs_.end()) continue;
      cut = true;
      v1::UnreachableWorker& one = *status->add_cannot_talk_to();
      one.set_worker(other->hello.name());
      one.set_transport(transport);
      one.set_problem(found->second.problem);
      one.set_age_seconds(absl::ToDoubleSeconds(now - found->second.at - asleep_));
    }
    if (reached && !cut) ++talks;
  }
  status->set_can_talk_to(talks);
}

}  // namespace longhaul::coordinator
