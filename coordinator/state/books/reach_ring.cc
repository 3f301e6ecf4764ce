#include "coordinator/state/books/reach_ring.h"

#include <algorithm>

#include "base/check.h"
#include "coordinator/state/text.h"

namespace longhaul::coordinator {

const Endpoint* ReachWorker::FindEndpoint(const std::string& transport) const {
  const auto found = std::ranges::find(endpoints, transport, &Endpoint::transport);
  return found == endpoints.end() ? nullptr : &*found;
}

bool ReachWorker::IsDialled(const std::string& transport) const {
  const Endpoint* endpoint = FindEndpoint(transport);
  return endpoint != nullptr && !endpoint->addresses.empty();
}

bool ReachRing::Place::operator<(const Place& other) const {
  if (name != other.name) return NaturalLess(name, other.name);
  return id < other.id;
}

bool ReachRing::Connect(const ReachWorker& worker) {
  connected_.insert({worker.name, worker.id});
  return members_.insert_or_assign(worker.id, Member{worker, true}).second;
}

void ReachRing::Disconnect(const WorkerId& id) {
  const auto found = members_.find(id);
  if (found == members_.end()) return;
  found->second.is_connected = false;
  connected_.erase({found->second.worker.name, id});
}

void ReachRing::Forget(const WorkerId& id) {
  Disconnect(id);
  members_.erase(id);
}

const ReachWorker* ReachRing::Find(const WorkerId& id) const {
  const auto found = members_.find(id);
  return found == members_.end() ? nullptr : &found->second.worker;
}

const ReachWorker& ReachRing::Get(const WorkerId& id) const {
  const ReachWorker* worker = Find(id);
  LH_CHECK(worker != nullptr, "the book of reach knows something of worker {}, but not it",
           id.value());
  return *worker;
}

bool ReachRing::IsConnected(const WorkerId& id) const {
  const auto found = members_.find(id);
  return found != members_.end() && found->second.is_connected;
}

std::vector<WorkerId> ReachRing::PeersOf(const ReachWorker& worker, size_t each_side) const {
  std::vector<WorkerId> peers;
  auto after = connected_.find({worker.name, worker.id}), before = after;
  for (size_t distance = 1; distance <= each_side && distance < connected_.size(); ++distance) {
    if (++after == connected_.end()) after = connected_.begin();
    if (before == connected_.begin()) before = connected_.end();
    --before;
    for (const WorkerId& peer : {after->id, before->id}) {
      if (std::ranges::find(peers, peer) == peers.end()) peers.push_back(peer);
    }
  }
  return peers;
}

}  // namespace longhaul::coordinator
