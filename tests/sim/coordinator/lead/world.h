// What a simulation of two seats, a witness and clients shares: time, the network, the contents of
// changes, and the checks. The seats are real (coordinator/lead/seat.h), and so are the witness's
// rules (proto/witness/rules.h). Changes are toys: each one has a number that a client has chosen.
// Threads: one. All times are virtual.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/lead/history.h"
#include "tests/sim/coordinator/lead/history_checker.h"
#include "tests/sim/coordinator/lead/net.h"
#include "tests/sim/coordinator/random.h"
#include "tests/sim/coordinator/timeline.h"

namespace longhaul::coordinator::lead_sim {

using sim::Net;
using sim::Random;
using sim::Timeline;

// Who sends and receives. Clients have the numbers from kClients on.
enum Place : size_t { kA, kB, kW, kClients };
constexpr size_t kClientCount = 3;

// A change as a seat stores it.
struct Row {
  History history;
  bool important = true;  // false: a leader that is alone does not sync it
};
// What is in a change. Its chain names it.
struct Content {
  uint64_t value = 0;  // a client's; 0: the change that begins a term, or one of the leader's own
  bool important = true;
};

// Which faults a seed has, for each second of virtual time.
struct Faults {
  double crash = 0, power_loss = 0;  // of a seat's or the witness's process, and of its machine
  double crash_at_write = 0;         // for each write of a seat: its process dies before
  double stop = 0, pause = 0;        // SIGSTOP; a machine that is paused with its clocks
  double cut = 0;                    // of one direction or of both
  double stall = 0, full = 0;        // disks
  double hasty = 0;       // a seat asks to lead though it hears a leader, and the witness lets it
  double told_alone = 0;  // somebody tells the leader to go on alone
  double hand_over = 0;   // somebody tells the leader to let the other seat lead
  double restore = 0;     // a seat's older image is put back
};

struct World {
  World(uint64_t seed, bool print) : World(std::make_unique<Own>(seed, print)) {}
  // In a larger simulation, whose time and random numbers these are. Both must outlive this object.
  World(Timeline* others_timeline, Random* others_random)
      : timeline(*others_timeline),
        random(*others_random),
        net(&timeline, &random),
        checker(this) {}

  struct Own {
    Own(uint64_t seed, bool print) : timeline(print), random(seed) {}
    Timeline timeline;
    Random random;
  };
  const std::unique_ptr<Own> own;  // null: they are another simulation's
  Timeline& timeline;
  Random& random;
  Net net;
  HistoryChecker checker;
  Faults faults;
  std::map<uint64_t, Content> contents;  // by chain
  std::map<std::string, uint64_t> seen;  // how often each situation was met
  std::string violation;                 // the first failed check; empty: none
  uint64_t last_tenure = 0;

  template <class... Args>
  void Violate(fmt::format_string<Args...> format, Args&&... args) {
    if (!violation.empty()) return;
    violation = fmt::format(format, std::forward<Args>(args)...);
    timeline.Note("VIOLATION: {}", violation);
  }

 private:
  explicit World(std::unique_ptr<Own> mine)
      : own(std::move(mine)),
        timeline(own->timeline),
        random(own->random),
        net(&timeline, &random),
        checker(this) {}
};

}  // namespace longhaul::coordinator::lead_sim
