// What the coordinator's calls and metrics say of who leads.
#pragma once

#include <functional>

#include "longhaul/v1/control.pb.h"

namespace longhaul::coordinator {

// Returns what is known now. May be called on any thread, and returns at once. An empty function
// stands for a coordinator that nothing is known of: its answers leave the message out.
using LeadershipSource = std::function<v1::LeadershipInfo()>;

}  // namespace longhaul::coordinator
