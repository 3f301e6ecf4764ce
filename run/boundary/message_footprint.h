// Predicts the disk that message buffers of a codec with state take. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "run/file/run_spec.h"

namespace longhaul {

struct MessageFootprint {
  uint64_t records = 0;  // exact
  uint64_t journal = 0;  // maximum: changes since the oldest checkpoint that is kept
  uint64_t total() const { return records + journal; }
  MessageFootprint& operator+=(const MessageFootprint& other) {
    records += other.records;
    journal += other.journal;
    return *this;
  }
};

// Predicts one store (file_store.h) of a run over `windows` windows of training text.
MessageFootprint FootprintOf(const RunSpec& spec, uint64_t windows, size_t record_bytes);

// The share of the run's visits of samples that are first visits, in which samples are sent whole.
double ShareOfFirstVisits(const RunSpec& spec, uint64_t windows);

}  // namespace longhaul
