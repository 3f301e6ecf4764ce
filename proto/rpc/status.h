// Converts Status to and from gRPC. The codes are the same; the message is for people. Pure.
#pragma once

#include <grpcpp/support/status.h>

#include <string_view>

#include "base/status.h"

namespace longhaul {

// A message longer than kMaxErrorBytes is cut, and ends with a note about that.
grpc::Status ToGrpc(const Status& status);

// Returns "<what>: <message>"; with an empty `what`, only the message. OK stays OK.
Status FromGrpc(const grpc::Status& status, std::string_view what = {});

}  // namespace longhaul
