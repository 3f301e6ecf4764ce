// The records of a tensor's samples, and the part of a payload that names the records that it
// continues. CPU and GPU encoders and decoders share both.
//
// Threads: those of the store (message_store.h). Errors: kInvalidArgument.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "codec/aqsgd/format.h"
#include "codec/codec.h"
#include "codec/message_store.h"

namespace longhaul::codec::aqsgd {

// The records of a tensor's samples; none if the context has no ids.
class Messages {
 public:
  explicit Messages(const Context& context)
      : ids_(context.sample_ids),
        store_(ids_.empty() ? nullptr : context.messages),
        step_(context.step) {}

  // Checks that the ids fit the tensor and the store, and that the store fits the shape.
  Status Check(const Shape& shape) const;

  bool remembers() const { return store_ != nullptr; }
  std::span<const std::byte> Read(uint64_t index) const {
    return remembers() ? store_->Read(ids_[index]) : std::span<const std::byte>();
  }
  Entry EntryOf(uint64_t index) const;
  // Null if a later sample of the tensor has the same id: the later record stays.
  StatusOr<std::byte*> Write(uint64_t index) const;

 private:
  const std::span<const uint64_t> ids_;
  MessageStore* const store_;
  const Step step_;
};

// The front of a payload: its sections before the scales, Layout::variable bytes.
inline Kind KindIn(std::span<const std::byte> front, const Layout& layout, uint64_t index) {
  return static_cast<Kind>(front[layout.kinds + index]);
}

// Checks the size of a payload that begins with `front`, which may be cut short. Returns the number
// of differences.
StatusOr<uint64_t> CheckSize(std::span<const std::byte> front, uint64_t payload_bytes,
                             const Shape& shape, const Params& params);
// Checks one sample of the front against this side's record.
Status CheckSample(std::span<const std::byte> front, uint64_t index, const Entry& mine,
                   bool remembers, const Layout& layout);

}  // namespace longhaul::codec::aqsgd
