// The workers whose connections to each other are checked. The connected workers form a ring in the
// order of their names: the last and the first worker are neighbours.
//
// Pure data; not thread-safe.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/ids.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

struct ReachWorker {
  WorkerId id;
  std::string name;
  std::vector<Endpoint> endpoints;  // one for each transport that the worker speaks

  // Null: the worker does not speak this transport.
  const Endpoint* FindEndpoint(const std::string& transport) const;
  // Returns whether the worker has an address that others can dial over this transport.
  bool IsDialled(const std::string& transport) const;
};

class ReachRing {
 public:
  // A worker's place in the order: by name in natural order (text.h), then by id.
  struct Place {
    std::string name;
    WorkerId id;
    bool operator<(const Place& other) const;
  };

  // Adds a connected worker, or replaces what is known about it. Returns whether it was unknown.
  bool Connect(const ReachWorker& worker);
  // The worker stays known, but leaves the ring.
  void Disconnect(const WorkerId& id);
  void Forget(const WorkerId& id);

  // Null: unknown. Valid until the worker is forgotten.
  const ReachWorker* Find(const WorkerId& id) const;
  // Aborts the process if the worker is unknown.
  const ReachWorker& Get(const WorkerId& id) const;
  bool IsConnected(const WorkerId& id) const;
  // Returns up to `each_side` neighbours on each side of a connected worker, the nearest first.
  std::vector<WorkerId> PeersOf(const ReachWorker& worker, size_t each_side) const;

 private:
  struct Member {
    ReachWorker worker;
    bool is_connected = false;
  };

  std::map<WorkerId, Member> members_;
  std::set<Place> connected_;
};

}  // namespace longhaul::coordinator
