// Converts a run's trace to the format of Chrome's trace viewer, which Perfetto opens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/v1/control.pb.h"

namespace longhaul {

// Returns a JSON document with three groups of rows: each stage's computing and waiting, its codec
// thread's work, and the time that each tensor was in flight in each direction of each link. Times
// count from the earliest step. Pure.
std::string ToChromeTrace(const v1::TraceReply& trace);

// Returns offsets, in ns, that convert each stage's times to stage 0's clock. 0 if clocks are
// equal, or if the stage before is unknown. Else estimated from messages between neighbours, on the
// assumption that the fastest activation and the fastest gradient took equally long.
std::vector<int64_t> ClockOffsetsNs(const v1::TraceReply& trace);

}  // namespace longhaul
