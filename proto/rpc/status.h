// Converts Status to and from gRPC's status. The codes are the same; payloads are lost. The message
// is for people. Pure.
#pragma once

#include <grpcpp/support/status.h>

#include <string>
#include <string_view>

#include "base/status.h"

namespace longhaul {

// Cuts a message that is longer than kMaxErrorBytes (channel.h), and adds how many bytes are
// missing.
grpc::Status ToGrpc(const Status& status);

// Returns the message. If it is about a peer that TLS does not trust, it also says what to do.
std::string WordsOf(const grpc::Status& status);
// Returns the same code with the message "<what>: <message>"; with an empty `what`, with the
// message alone. OK stays OK.
Status FromGrpc(const grpc::Status& status, std::string_view what = {});

}  // namespace longhaul
