// Converts a run's trace to the format of Chrome's trace viewer, which Perfetto opens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/v1/control.pb.h"

namespace longhaul {

// Returns a JSON document with three groups of rows: what each stage computes and waits for, the
// work of its codec thread, and for both directions of each link between stages the time from the
// first to the last byte of each tensor. Times are in microseconds from the beginning of the
// earliest step, on the clock of each replica's first stage. Pure.
std::string ToChromeTrace(const v1::TraceReply& trace);

// Returns an offset in ns for each of trace.stages. The offset plus a time of the stage is the time
// on the clock of its replica's first stage. The clocks of two neighbors count as equal if they
// are one clock, or if too little is known. Else their difference is estimated from the neighbors'
// messages, on the assumption that the fastest activation and the fastest gradient took equally
// long. Pure.
std::vector<int64_t> ClockOffsetsNs(const v1::TraceReply& trace);

}  // namespace longhaul
