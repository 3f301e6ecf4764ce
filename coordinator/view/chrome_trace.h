// Converts a run's trace to the format of Chrome's trace viewer, which Perfetto opens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/v1/control.pb.h"

namespace longhaul {

// A JSON document with three groups of rows: what each stage computed and waited for, what its
// codec thread did, and when each tensor was in flight in each direction of each link. Times count
// from the earliest step. Pure.
std::string ToChromeTrace(const v1::TraceReply& trace);

// Offsets, in ns, that convert each stage's times to stage 0's clock. 0 where clocks are equal, or
// where the stage before is unknown. Else estimated from messages between neighbours, on the
// assumption that the fastest activation and the fastest gradient took equally long.
std::vector<int64_t> ClockOffsetsNs(const v1::TraceReply& trace);

}  // namespace longhaul
