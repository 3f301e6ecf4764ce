// Who speaks with the coordinator.
#ifndef LONGHAUL_COORDINATOR_STATE_IDS_H_
#define LONGHAUL_COORDINATOR_STATE_IDS_H_

#include <cstdint>

#include "base/strong.h"

namespace longhaul::coordinator {

// One gRPC stream of a worker. Never reused.
using SessionId = Strong<struct SessionIdTag, uint64_t>;
// One call of the CLI that waits for a Reply. Never reused.
using RequestId = Strong<struct RequestIdTag, uint64_t>;

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_STATE_IDS_H_
