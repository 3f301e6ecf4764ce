// The requests to a witness and its record (rules.h) as messages. Pure.
#pragma once

#include "base/status.h"
#include "longhaul/v1/standby.pb.h"
#include "proto/witness/rules.h"

namespace longhaul::witness {

v1::WitnessAsked ToProto(const Request& request);
// kInvalidArgument: the message is no request that this version knows.
StatusOr<Request> FromProto(const v1::WitnessAsked& asked);
v1::WitnessRecord ToProto(const Record& record);
Record FromProto(const v1::WitnessRecord& record);

}  // namespace longhaul::witness
