// Makes faults happen in a simulation, and lets users submit, stop and resume runs meanwhile. All
// choices come from the simulation's random numbers, so equal seeds give equal faults. Runs on the
// simulation's only thread.
#pragma once

#include <map>

#include "tests/sim/coordinator/cluster.h"

namespace longhaul::coordinator::sim {

class Chaos {
 public:
  // `cluster` must outlive this object. This object must live as long as the cluster's timeline
  // runs, because the timeline calls it.
  explicit Chaos(Cluster* cluster) : cluster_(*cluster), world_(cluster->world) {}

  // Draws the probabilities of faults, and from now on draws faults twice a virtual second.
  void Begin();
  // Ends all faults. Everything that is down starts again after one virtual second, and cut links
  // and ways to the coordinator work again at once. Pauses of processes still last their time.
  void End();
  // How long the faults shall last; drawn by Begin. The caller calls End after this virtual time.
  absl::Duration length() const { return length_; }

 private:
  void DrawRates();
  // For two coordinators: their own faults, and those of workers that end no run.
  void DrawRatesOfPair();
  void MomentOfPair();
  // Draws which faults and users' calls happen now. Runs every 0.5 s of virtual time.
  void Moment();
  void TroubleWorker(size_t worker);
  void TroubleSession(size_t worker);
  void TroubleDisk(size_t worker);
  // Crashes and restarts the worker again and again.
  void Flap(size_t worker, MonoTime until);
  // Starts a second process with the same identity, for a while.
  void StartTwin(size_t worker);
  void HarmObject();
  void TroubleDataPath();
  void TroubleCoordinator();
  void UserActs();
  void UserResumes();
  bool Happens(double per_second);

  Cluster& cluster_;
  World& world_;
  absl::Duration length_;
  double user_acts_ = 0, user_resumes_ = 0;  // per second of virtual time
  bool over_ = false;
  std::map<size_t, MonoTime> moved_at_;  // when each worker's address changed last
};

}  // namespace longhaul::coordinator::sim
