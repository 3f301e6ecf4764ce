// The store of a simulated coordinator. There are two implementations, which must behave alike: a
// fast model in memory, and the real store (coordinator/store) on disk. Errors of the real store
// end the process. Not thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "coordinator/state/state.h"

namespace longhaul::coordinator::sim {

class SimStore {
 public:
  virtual ~SimStore() = default;
  // Applies all writes in one transaction.
  virtual void Apply(const std::vector<Write>& writes) = 0;
  // Opens the store again, as the next process of the coordinator does.
  virtual void Reopen() = 0;
  // LoadRuns and NextEventSequence are as in Store (coordinator/store/store.h).
  virtual StoredRuns LoadRuns() const = 0;
  virtual uint64_t NextEventSequence() const = 0;
};

std::unique_ptr<SimStore> MakeModelStore();
// Makes the real store in `folder`, which must be empty.
std::unique_ptr<SimStore> MakeRealStore(const std::string& folder);

}  // namespace longhaul::coordinator::sim
