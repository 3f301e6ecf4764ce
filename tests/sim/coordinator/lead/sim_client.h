// A client that asks one seat or the other to store numbers, one after another. A call that nobody
// knows the end of is sometimes made again, at either seat. Threads: one.
#pragma once

#include <functional>

#include "tests/sim/coordinator/lead/messages.h"
#include "tests/sim/coordinator/lead/world.h"

namespace longhaul::coordinator::lead_sim {

class SimClient {
 public:
  using SendTo = std::function<void(Place, Ask)>;
  SimClient(World* world, size_t place, SendTo send)
      : world_(world), place_(place), send_(std::move(send)) {}

  void Start();
  void Stop() { stopped_ = true; }

 private:
  void Call(uint64_t value);
  void End(uint64_t value, uint64_t call, Answer answer);

  World* const world_;
  const size_t place_;
  const SendTo send_;
  Place leader_ = kA;  // whom it asks first
  uint64_t calls_ = 0, values_ = 0;
  bool open_ = false, stopped_ = false;
};

}  // namespace longhaul::coordinator::lead_sim
