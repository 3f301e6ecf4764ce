// Simulates the disk of a seat: its record, and its log of changes. A killed process loses nothing
// that it wrote. A loss of power takes what was not synced: a suffix of the log. A record is
// replaced as a whole, and always synced.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "coordinator/lead/seat.h"
#include "tests/sim/coordinator/lead/world.h"

namespace longhaul::coordinator::lead_sim {

struct SeatDisk {
  SeatRecord record;
  bool led = false;          // whoever wrote the record led
  bool has_witness = false;  // a witness counts
  std::vector<Row> log;      // the change with number n is at n - 1
  uint64_t applied = 0;      // number of the newest change that the tables have
  uint64_t synced = 0;       // number of the newest change that a loss of power leaves

  History HistoryAt(uint64_t number) const {
    return number == 0 ? History() : log[number - 1].history;
  }
  History Applied() const { return HistoryAt(applied); }
  // Changes that are stored and not applied.
  std::vector<History> Tail() const {
    std::vector<History> tail;
    for (uint64_t i = applied; i < log.size(); ++i) tail.push_back(log[i].history);
    return tail;
  }
  // Syncing a change syncs all before it.
  void SyncAll() { synced = log.size(); }
  void LosePower() {
    log.resize(synced);
    applied = std::min(applied, synced);
  }
};

}  // namespace longhaul::coordinator::lead_sim
