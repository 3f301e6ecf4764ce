// Predicts how many bytes data-parallel replicas send each other in a step, for plans.
#pragma once

#include <cstdint>

#include "transport/replicas/layout.h"

namespace longhaul::replicas {

// The bytes, headers included, that one replica sends to another in a step. `gradients`: the
// sender's gradients for the receiver's shards. For the sender's own shards with sparse pieces it
// also counts the sets of positions that any replica sends (unions, message.h). `parameters`: the
// new parameters of the sender's shards. The numbers are exact for dense pieces, of which all
// elements are sent. They are estimates for sparse pieces, of which only the largest elements are
// sent: the estimate assumes that no two replicas send the same position, and that the sketches
// (message.h) have room for all positions.
struct ExchangeTraffic {
  uint64_t gradients = 0, parameters = 0;
  uint64_t total() const { return gradients + parameters; }
};
// Returns what replica `from` sends to replica `to`. Pure, as all functions here.
ExchangeTraffic UsualTraffic(const Layout& layout, uint32_t from, uint32_t to);
// Returns the total bytes from one replica to another, for the pair of replicas with the most; 0 if
// there is only one replica.
uint64_t LargestUsualTraffic(const Layout& layout);
// Returns the number of one-way delays until the gradients of a bucket (layout.h) are summed: each
// message of the exchange waits for the arrival of the previous message.
uint32_t MessagesOfSum(const GradientOptions& gradients);
// Returns the same count for the whole exchange, which adds three: two for the gradient norm, there
// and back, and one for the parameters.
uint32_t MessagesOfExchange(const GradientOptions& gradients);

}  // namespace longhaul::replicas
