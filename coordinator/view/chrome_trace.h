// Converts a run's trace to the format of Chrome's trace viewer, which Perfetto opens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/v1/control.pb.h"

namespace longhaul {

// Returns a JSON document with three groups of rows: what each stage computes and waits for, the
// work of its codec thread, and for both directions of each link between stages the time from the
// first to the last byte of each tensor. Times count from the earliest step. Pure.
std::string ToChromeTrace(const v1::TraceReply& trace);

// Returns for each stage the offset, in ns, that converts its times to the clock of its replica's
// first stage. Between two neighbours it is 0 if they share a clock or too little is known. Else it
// is estimated from their messages, on the assumption that the fastest activation and the fastest
// gradient took equally long.
std::vector<int64_t> ClockOffsetsNs(const v1::TraceReply& trace);

}  // namespace longhaul
