// Predicts how many bytes data-parallel replicas send each other in a step, for plans.
#pragma once

#include <cstdint>

#include "transport/replicas/layout.h"

namespace longhaul::replicas {

// The bytes, headers included, that one replica sends to another in a step. `gradients`: the
// sender's gradients for the receiver's shards, and its unions (message.h) for its own shards.
// `parameters`: the new parameters of the sender's shards. Exact for dense pieces. The bytes of
// sparse pieces are estimated as if no two replicas kept the same position and no position were
// left out of sketches.
struct ExchangeTraffic {
  uint64_t gradients = 0, parameters = 0;
  uint64_t total() const { return gradients + parameters; }
};
// Returns what replica `from` sends to replica `to`. Pure, as all functions here.
ExchangeTraffic UsualTraffic(const Layout& layout, uint32_t from, uint32_t to);
// Returns the total bytes from one replica to another, for the pair of replicas with the most; 0 if
// there is only one replica.
uint64_t MostUsualTraffic(const Layout& layout);
// Returns the number of one-way delays until a bucket's gradients are summed: each message of the
// exchange waits for the arrival of the previous message.
uint32_t MessagesOfSum(const GradientOptions& gradients);
// Returns the same count for the whole exchange, which adds three: two for the gradient norm, there
// and back, and one for the parameters.
uint32_t MessagesOfExchange(const GradientOptions& gradients);

}  // namespace longhaul::replicas
