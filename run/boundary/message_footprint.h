// Predicts the bytes of disk that message buffers take on a worker. In them, a codec with state
// keeps a record of each sample of the text. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "run/file/run_spec.h"

namespace longhaul {

struct MessageFootprint {
  uint64_t records = 0;  // exact
  uint64_t journal = 0;  // maximum; to undo changes since the oldest kept checkpoint
  uint64_t total() const { return records + journal; }
  MessageFootprint& operator+=(const MessageFootprint& other) {
    records += other.records;
    journal += other.journal;
    return *this;
  }
};

// Predicts one store (file_store.h) of records of `record_bytes`, for a run over `windows` windows
// of training text.
MessageFootprint FootprintOf(const RunSpec& spec, uint64_t windows, size_t record_bytes);

// Returns the share, 0 to 1, of a run's samples that are sent for the first time. A codec with
// state sends a sample whole the first time.
double ShareOfFirstVisits(const RunSpec& spec, uint64_t windows);

}  // namespace longhaul
