// What goes wrong in a simulation, and what users do meanwhile; drawn from its seed.
#pragma once

#include <map>

#include "tests/sim/coordinator/cluster.h"

namespace longhaul::coordinator::sim {

class Chaos {
 public:
  explicit Chaos(Cluster* cluster) : cluster_(*cluster), world_(cluster->world) {}

  void Begin();
  // Nothing goes wrong from now on; what is down or cut off comes back.
  void End();
  absl::Duration length() const { return length_; }

 private:
  void DrawRates();
  void Moment();
  void TroubleWorker(size_t worker);
  void TroubleSession(size_t worker);
  void TroubleDisk(size_t worker);
  void Flap(size_t worker, MonoTime until);
  void StartTwin(size_t worker);
  void TroubleDataPath();
  void TroubleCoordinator();
  void UserActs();
  void UserResumes();
  bool Happens(double per_second);

  Cluster& cluster_;
  World& world_;
  absl::Duration length_;
  double user_acts_ = 0, user_resumes_ = 0;
  bool over_ = false;
  std::map<size_t, MonoTime> moved_at_;  // by worker
};

}  // namespace longhaul::coordinator::sim
