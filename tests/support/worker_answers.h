// Answers that stand-ins for workers give the coordinator.
#pragma once

#include <string>

#include "longhaul/v1/worker.pb.h"

namespace longhaul::testing {

// Returns the answer to `ask`, whose receiver dials: the same problem at each address; "": it
// reached the other worker.
inline v1::ReachTried ReachTriedOf(const v1::TryReach& ask, const std::string& problem = "") {
  v1::ReachTried tried;
  tried.set_check(ask.check());
  for (int i = 0; i < ask.addresses_size(); ++i) tried.add_problems(problem);
  return tried;
}

}  // namespace longhaul::testing
