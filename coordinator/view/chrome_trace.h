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

// Returns for each stage the offset, in ns, that is added to its times to have them on the clock of
// its replica's first stage. The clocks of two neighbours count as equal if they are one clock, or
// if too little is known. Else their difference is estimated from the neighbours' messages, on the
// assumption that the fastest activation and the fastest gradient took equally long.
std::vector<int64_t> ClockOffsetsNs(const v1::TraceReply& trace);

}  // namespace longhaul
