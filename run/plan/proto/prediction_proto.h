// Converts what the planner knew and expects to messages and back; plan_proto.h has the rest of a
// plan. Private to this folder.
#pragma once

#include "longhaul/v1/plan.pb.h"
#include "run/plan/plan.h"

namespace longhaul {

v1::CellEstimate ToProto(const CellEstimate& estimate);
CellEstimate FromProto(const v1::CellEstimate& estimate);

v1::EdgeEstimate ToProto(const EdgeEstimate& estimate);
EdgeEstimate FromProto(const v1::EdgeEstimate& estimate);

v1::Prediction ToProto(const Prediction& prediction);
Prediction FromProto(const v1::Prediction& prediction);

}  // namespace longhaul
