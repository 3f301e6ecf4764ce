// Status across gRPC: the codes are the same, the message is for people. Pure functions.
#ifndef LONGHAUL_PROTO_RPC_STATUS_H_
#define LONGHAUL_PROTO_RPC_STATUS_H_

#include <grpcpp/support/status.h>

#include <string_view>

#include "base/status.h"

namespace longhaul {

// Cuts a message longer than kMaxErrorBytes and says so in it.
grpc::Status ToGrpc(const Status& status);

// "<what>: <message>"; with an empty `what`, the message alone. OK stays OK.
Status FromGrpc(const grpc::Status& status, std::string_view what = {});

}  // namespace longhaul

#endif  // LONGHAUL_PROTO_RPC_STATUS_H_
