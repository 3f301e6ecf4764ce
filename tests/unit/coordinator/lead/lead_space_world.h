// A state of the space that lead_space.h searches: two real seats, the witness's record, and all
// messages that were ever sent.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "coordinator/lead/seat.h"
#include "tests/unit/coordinator/lead/lead_space.h"

namespace longhaul::coordinator::space {

constexpr std::array<const char*, 2> kSeats = {"A", "B"};

struct ToWitness {
  int from = 0;
  witness::Request request;
};
struct FromWitness {
  int to = 0;
  witness::Record record;
};
struct ToSeat {
  int to = 0;
  SeatMessage message;
  int restores = 0;  // how often a store was replaced before: a connection ends with that
};
using Message = std::variant<ToWitness, FromWitness, ToSeat>;

// Equal messages have equal hashes.
uint64_t HashOf(const Message& message);
// The chain of a change that comes after `before` and is made by `tenure`.
uint64_t HashOf(const History& before, const Tenure& tenure);

// Messages that were ever sent. Each may arrive at any time, any number of times, or never.
struct Sent {
  uint64_t hash = 0;
  std::shared_ptr<const Message> message;
};

struct World {
  std::array<Seat, 2> seats = {Seat(SeatRecord{}), Seat(SeatRecord{})};
  std::array<std::vector<History>, 2> logs;
  std::array<bool, 2> term_committed = {};
  witness::Record witness;
  std::array<Seat, 2> images = seats;                // their stores at the start
  int restores = 0;                                  // how often a store was replaced
  std::vector<Sent> sent;                            // by hash
  std::vector<History> done;                         // committed by anybody, in order
  std::vector<std::pair<uint64_t, Tenure>> leaders;  // who committed in each term
  SpaceLimits left;
  int tenures = 0;

  uint64_t Hash() const;
};

}  // namespace longhaul::coordinator::space
