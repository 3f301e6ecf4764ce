// The rows of the table `requests`: answered calls (coordinator/state/once.h). Internal to
// coordinator/store.
#pragma once

#include <vector>

#include "base/status.h"
#include "coordinator/state/commands.h"
#include "coordinator/store/sqlite.h"

namespace longhaul::coordinator {

class RequestRows {
 public:
  Status Prepare(sqlite::Database& database);
  Status Write(const write::Answered& answered);
  Status Write(const write::AnswerForgotten& forgotten);
  // Makes a change that changes nothing.
  Status Write(const write::Barrier& barrier);

 private:
  sqlite::Statement upsert_, delete_;
};

// In any order.
StatusOr<std::vector<AnsweredCall>> ReadAnswered(sqlite::Database& database);

}  // namespace longhaul::coordinator
