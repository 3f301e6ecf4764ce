// Predicts the bytes of disk that message buffers take on a worker. A codec with state (such as
// aqsgd) keeps a record of each sample of the text in its message buffer, because it sends a sample
// as a difference from the last time. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/ids.h"
#include "run/file/run_spec.h"

namespace longhaul {

struct MessageFootprint {
  uint64_t records = 0;  // bytes, exact
  uint64_t journal = 0;  // bytes, maximum; to undo changes since the oldest kept checkpoint
  uint64_t total() const { return records + journal; }
  MessageFootprint& operator+=(const MessageFootprint& other) {
    records += other.records;
    journal += other.journal;
    return *this;
  }
};

// Number of records that a store has for each window of text: 2 for activations with train.dpo,
// which are computed with adapters and without (boundary_shape.h).
uint32_t RecordsOfWindow(const RunSpec& spec, Direction direction);

// Predicts one store (codec/messages/file_store.h) of records of `record_bytes` bytes, for a run
// over `windows` windows (training samples) of text.
MessageFootprint FootprintOf(const RunSpec& spec, uint64_t windows, size_t record_bytes,
                             Direction direction);

// Returns the share, 0 to 1, of a run's samples that are sent for the first time; 1 for a run of no
// steps. A codec with state sends a sample whole the first time.
double ShareOfFirstVisits(const RunSpec& spec, uint64_t windows);

}  // namespace longhaul
