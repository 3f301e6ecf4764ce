// `longhaul status` without a run: which coordinator leads, and what its standby and its witness
// have.
#pragma once

#include <string>

#include "cli/program.h"

namespace longhaul::cli {

// Four lines, and more where something is wrong. `terminal`: times are for a terminal. Pure.
std::string LeadershipText(const v1::InfoReply& info, bool terminal);

StatusOr<int> ShowLeadership(Invocation& invocation);

}  // namespace longhaul::cli
