// What the two coordinators of a simulation send each other. A stream keeps its order: whoever
// misses one of its messages ignores those behind it, and notices by the silence.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "coordinator/lead/history.h"
#include "coordinator/lead/seat.h"
#include "coordinator/store/journal_core.h"
#include "tests/sim/coordinator/lead/world.h"

namespace longhaul::coordinator::sim::pair_message {

// A coordinator that starts asks the other one for the term with which it leads.
struct AskTerm {};
struct TermIs {
  uint64_t term = 0;  // 0: it does not lead
};

// Without the witness, one elects the other.
struct Vote {
  seat_message::Vote vote;
};
struct Voted {
  seat_message::Voted voted;
};

// ---- The stream, upwards.
struct Hello {
  std::string seat;
  uint64_t term = 0;
  std::optional<Standing> standing;  // nullopt: it has no store
};
struct Logged {
  History history;
};
// ---- Downwards.
struct Begin {
  uint64_t term = 0;
  std::string seat;
  bool gives_way = false;  // the follower must not be elected before it is in sync
  History newest;
  std::optional<uint64_t> resume_after;  // nullopt: `copy` replaces the store
  std::optional<std::vector<lead_sim::Row>> copy;
};
struct Change {
  uint64_t chain = 0;  // names it (PairWorld::changes)
};
struct Beat {
  uint64_t committed = 0;
  bool in_sync = false;  // the follower is in sync
};
// ---- Both ways: the stream has ended.
struct Bye {};

struct Message {
  uint64_t stream = 0;  // 0: of none
  uint64_t number = 0;  // counts the messages of one direction of the stream, from 1
  std::variant<AskTerm, TermIs, Vote, Voted, Hello, Logged, Begin, Change, Beat, Bye> body;
};

}  // namespace longhaul::coordinator::sim::pair_message
