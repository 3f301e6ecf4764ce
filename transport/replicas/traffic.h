// Predicts how many bytes data-parallel replicas send each other in a step, for plans.
#pragma once

#include <cstdint>

#include "transport/replicas/layout.h"

namespace longhaul::replicas {

// The bytes, with headers, that replica `from` sends to replica `to` in a step. `gradients`: its
// gradients for the shards of `to`, and its unions (message.h) for its own shards. `parameters`:
// the new parameters of its own shards. Exact for dense pieces. For sparse ones an estimate, as if
// no two replicas kept the same positions and none were left out of sketches. Pure.
struct ExchangeTraffic {
  uint64_t gradients = 0, parameters = 0;
  uint64_t total() const { return gradients + parameters; }
};
ExchangeTraffic UsualTraffic(const Layout& layout, uint32_t from, uint32_t to);
// Returns the largest traffic from one replica to another.
uint64_t MostUsualTraffic(const Layout& layout);
// Returns how many messages follow one another, each after the one before has come, until gradients
// are summed.
uint32_t MessagesOfSum(const GradientOptions& gradients);
// Returns the same count for the whole exchange: with two messages for the gradient norm, there and
// back, and one for the parameters.
uint32_t MessagesOfExchange(const GradientOptions& gradients);

}  // namespace longhaul::replicas
