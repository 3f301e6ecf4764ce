// Predicts how many bytes data-parallel replicas send each other in a step, for plans.
#pragma once

#include <cstdint>

#include "transport/replicas/layout.h"

namespace longhaul::replicas {

// Bytes, with headers, that replica `from` sends to replica `to` in a step: its gradients for the
// shards of `to`, its part in summing its own shards, and the parameters of its shards. Exact for
// dense pieces; an upper bound for sparse ones, as if no two replicas kept the same positions.
// Pure.
struct ExchangeTraffic {
  uint64_t gradients = 0, parameters = 0;
  uint64_t total() const { return gradients + parameters; }
};
ExchangeTraffic UsualTraffic(const Layout& layout, uint32_t from, uint32_t to);
// The largest traffic between any two replicas.
uint64_t MostUsualTraffic(const Layout& layout);
// Number of messages that wait for each other until gradients are summed.
uint32_t MessagesOfSum(const GradientOptions& gradients);
// The same count until the whole exchange is done: with the norm's way there and back, and the
// parameters.
uint32_t MessagesOfExchange(const GradientOptions& gradients);

}  // namespace longhaul::replicas
