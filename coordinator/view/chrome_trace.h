// A run's trace in the format of Chrome's trace viewer, which Perfetto opens.
#ifndef LONGHAUL_COORDINATOR_VIEW_CHROME_TRACE_H_
#define LONGHAUL_COORDINATOR_VIEW_CHROME_TRACE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/v1/control.pb.h"

namespace longhaul {

// A JSON document with three groups of rows: what each stage computed and waited for, what its
// codec thread did, and when which tensor was on its way in each direction of each link. Times
// begin with the earliest step. Pure.
std::string ToChromeTrace(const v1::TraceReply& trace);

// What has to be added to the times of each stage so that they are those of stage 0's clock, ns. 0
// where clocks are the same, and where nothing is known of a stage above. Else by the messages
// between neighbours: the quickest activation and the quickest gradient are taken to have been
// under way equally long.
std::vector<int64_t> ClockOffsetsNs(const v1::TraceReply& trace);

}  // namespace longhaul

#endif  // LONGHAUL_COORDINATOR_VIEW_CHROME_TRACE_H_
