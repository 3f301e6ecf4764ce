// Numbers of sessions, requests and computations in the state machine. Identities of runs and
// workers are in base/ids.h.
#pragma once

#include <cstdint>

#include "base/strong.h"

namespace longhaul::coordinator {

// One gRPC stream of a worker, called a session. Never reused.
using SessionId = Strong<struct SessionIdTag, uint64_t>;
// One call of the CLI that waits for a command::Reply. Never reused; 0: no call.
using RequestId = Strong<struct RequestIdTag, uint64_t>;
// The computation of a plan, or of better settings for the plan of a running run, outside the state
// machine. Never reused.
using ComputationId = Strong<struct ComputationIdTag, uint64_t>;

// Whether the member's key has signed what a worker reports.
enum class Signature : uint8_t {
  kNone,  // the coordinator has no TLS, so members have no keys
  kGood,
  kBad,  // missing, or of another key or text
};

}  // namespace longhaul::coordinator
