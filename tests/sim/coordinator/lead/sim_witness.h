// The witness: the real rules (proto/witness/rules.h) around a file. Threads: one.
#pragma once

#include <functional>

#include "proto/witness/rules.h"
#include "tests/sim/coordinator/lead/world.h"

namespace longhaul::coordinator::lead_sim {

class SimWitness {
 public:
  explicit SimWitness(World* world) : world_(world) { file_.id = record_.id = "W"; }

  // `answer` runs later with the record, unless the process dies first.
  void Receive(const witness::Request& request,
               const std::function<void(const witness::Record&)>& answer);
  // The process dies, and starts again after `away`.
  void Crash(absl::Duration away);
  void Freeze(absl::Duration length);
  void Heal() { away_until_ = MonoTime(); }
  bool IsAway() const { return away_until_ > world_->timeline.now(); }

  const witness::Record& file() const { return file_; }

 private:
  World* const world_;
  witness::Record file_, record_;  // on disk, and in memory
  uint64_t process_ = 0;
  MonoTime away_until_, heard_leader_, seen_stored_;
};

}  // namespace longhaul::coordinator::lead_sim
