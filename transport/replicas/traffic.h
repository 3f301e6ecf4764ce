// What replicas send each other in a step, for plans.
#ifndef LONGHAUL_TRANSPORT_REPLICAS_TRAFFIC_H_
#define LONGHAUL_TRANSPORT_REPLICAS_TRAFFIC_H_

#include <cstdint>

#include "transport/replicas/layout.h"

namespace longhaul::replicas {

// Bytes of messages, with their headers, that replica `from` sends replica `to` in a step: its
// gradients of the other's shards, and the parameters of its own. Exact for dense pieces; of sparse
// ones as if no two replicas kept the same positions. Pure.
uint64_t UsualBytes(const Layout& layout, uint32_t from, uint32_t to);

}  // namespace longhaul::replicas

#endif  // LONGHAUL_TRANSPORT_REPLICAS_TRAFFIC_H_
