// Writes rows of the table `runs`. A run changes its step each second, and its run file, plan and
// list of checkpoints, which are most of its bytes, hardly ever: those columns are written only
// where they are not as they were. A standby gets the same statements, so it gets as little.
// Internal to coordinator/store.
#pragma once

#include <map>
#include <string>

#include "base/ids.h"
#include "base/status.h"
#include "coordinator/state/run_record.h"
#include "coordinator/store/sqlite.h"

namespace longhaul::coordinator {

class RunRows {
 public:
  Status Prepare(sqlite::Database& database);
  // Adds a row at the end, or updates the run's row in place.
  Status Write(const RunRecord& record);
  // The run's row is gone.
  void Forget(const RunId& run) { large_.erase(run); }
  // What was written may not have been committed, so the next rows are written whole.
  void Distrust() { large_.clear(); }

 private:
  sqlite::Statement upsert_, update_;
  std::map<RunId, std::string> large_;  // the hash of the large columns that the row has
};

}  // namespace longhaul::coordinator
