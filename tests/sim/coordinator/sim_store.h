// What a simulated coordinator's store keeps. Two kinds that must behave alike: a model, which is
// fast, and the real one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "coordinator/state/state.h"

namespace longhaul::coordinator::sim {

class SimStore {
 public:
  virtual ~SimStore() = default;
  // One transaction.
  virtual void Apply(const std::vector<Write>& writes) = 0;
  // The process that had it open is gone; the next one opens it.
  virtual void Reopen() = 0;
  virtual StoredRuns LoadRuns() const = 0;
  virtual uint64_t NextEventSequence() const = 0;
};

std::unique_ptr<SimStore> MakeModelStore();
// coordinator/store in an empty folder.
std::unique_ptr<SimStore> MakeRealStore(const std::string& folder);

}  // namespace longhaul::coordinator::sim
