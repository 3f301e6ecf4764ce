// What the parts of this simulation send each other.
#pragma once

#include <cstdint>
#include <functional>
#include <variant>
#include <vector>

#include "coordinator/lead/seat.h"
#include "proto/witness/rules.h"
#include "tests/sim/coordinator/lead/world.h"

namespace longhaul::coordinator::lead_sim {

// A whole copy of a leader's store.
struct Copy {
  uint64_t term = 0;
  std::vector<Row> log;
};
// The leader asks the other seat to be elected in its place.
struct HandOver {
  uint64_t term = 0;
};
// A client wants `value` stored. `answer` may run on the client's side only.
enum class Answer : uint8_t { kStored, kRefused, kUnknown };
struct Ask {
  uint64_t value = 0;
  size_t client = 0;
  std::function<void(Answer)> answer;
};
using ToSeat = std::variant<SeatMessage, witness::Record, Copy, HandOver, Ask>;

}  // namespace longhaul::coordinator::lead_sim
