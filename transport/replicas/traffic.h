// What replicas send each other in a step, for plans.
#ifndef LONGHAUL_TRANSPORT_REPLICAS_TRAFFIC_H_
#define LONGHAUL_TRANSPORT_REPLICAS_TRAFFIC_H_

#include <cstdint>

#include "transport/replicas/layout.h"

namespace longhaul::replicas {

// Bytes of messages, with their headers, that replica `from` sends replica `to` in a step: all that
// it takes to have its gradients of the other's shards in their sum, and the other's in its own;
// and the parameters of its shards. Exact for dense pieces; of sparse ones as if no two replicas
// kept the same positions. Pure.
struct ExchangeTraffic {
  uint64_t gradients = 0, parameters = 0;
  uint64_t total() const { return gradients + parameters; }
};
ExchangeTraffic UsualTraffic(const Layout& layout, uint32_t from, uint32_t to);
// The most that a replica sends another one.
uint64_t MostUsualTraffic(const Layout& layout);
// Messages of which each waits for the one before, until gradients are summed.
uint32_t MessagesOfSum(const GradientOptions& gradients);
// Until the exchange is done: those, the norm there and back, and parameters.
uint32_t MessagesOfExchange(const GradientOptions& gradients);

}  // namespace longhaul::replicas

#endif  // LONGHAUL_TRANSPORT_REPLICAS_TRAFFIC_H_
