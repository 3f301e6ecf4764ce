// A step of a run as a timeline: what each stage and each codec thread did when.
#ifndef LONGHAUL_COORDINATOR_HTTP_TIMELINE_H_
#define LONGHAUL_COORDINATOR_HTTP_TIMELINE_H_

#include <string>

#include "longhaul/v1/control.pb.h"

namespace longhaul::coordinator {

// The newest step that every stage of the trace has, as JSON (docs/design/formats.md). All times
// are by the clock of the first stage, in microseconds after the step's first begin. "step" is null
// where there is no such step. Pure.
std::string TimelineJson(const v1::TraceReply& trace);

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_HTTP_TIMELINE_H_
