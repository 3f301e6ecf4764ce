// A message store in memory that cannot undo changes: for measurements and tests.
#pragma once

#include <vector>

#include "base/aligned_buffer.h"
#include "codec/message_store.h"

namespace longhaul::codec {

// Allocates a sample's memory at its first Write. Does not check samples or steps, and cannot fail.
class MemoryStore final : public MessageStore {
 public:
  MemoryStore(uint64_t samples, size_t record_bytes)
      : record_bytes_(record_bytes), records_(samples) {}

  uint64_t samples() const override { return records_.size(); }
  size_t record_bytes() const override { return record_bytes_; }
  std::span<const std::byte> Read(uint64_t sample) const override {
    return records_[sample].span();
  }
  StatusOr<std::span<std::byte>> Write(Step step, uint64_t sample) override;
  void Prefetch(std::span<const uint64_t> /*samples*/) override {}

 private:
  const size_t record_bytes_;
  std::vector<AlignedBuffer> records_;
};

}  // namespace longhaul::codec
