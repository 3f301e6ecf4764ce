// Access to the records of a tensor's samples, and checks of a payload's front: the sections before
// the scales, Layout::variable bytes. CPU and GPU encoders and decoders share this file.
//
// Threads: as for the store (message_store.h). Errors: kInvalidArgument; Write also returns errors
// of the store.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "codec/aqsgd/format.h"
#include "codec/codec.h"
#include "codec/message_store.h"

namespace longhaul::codec::aqsgd {

// The records of a tensor's samples; none if the context has no ids. `index` is a sample's place in
// the tensor, below the number of samples. The ids and the store of the context must outlive this
// object. Call Check before any other method.
class Messages {
 public:
  explicit Messages(const Context& context)
      : ids_(context.sample_ids),
        store_(ids_.empty() ? nullptr : context.messages),
        step_(context.step) {}

  // Checks that the ids fit the tensor and the store, and that the store fits the shape.
  Status Check(const Shape& shape) const;

  bool remembers() const { return store_ != nullptr; }
  // Returns the sample's record; empty if there is none.
  std::span<const std::byte> Read(uint64_t index) const {
    return remembers() ? store_->Read(ids_[index]) : std::span<const std::byte>();
  }
  // Returns what a payload says about the sample: its id, and the checksum of its record.
  Entry EntryOf(uint64_t index) const;
  // Returns the record to overwrite (MessageStore::Write). Null if a later sample of the tensor has
  // the same id, because the later one's record is kept. remembers() must be true.
  StatusOr<std::byte*> Write(uint64_t index) const;

 private:
  const std::span<const uint64_t> ids_;
  MessageStore* const store_;
  const Step step_;
};

// Reads the kind of a sample from the front. In a hostile payload this may be any number.
inline Kind KindIn(std::span<const std::byte> front, const Layout& layout, uint64_t index) {
  return static_cast<Kind>(front[layout.kinds + index]);
}

// Checks that a payload that begins with `front` has the right size. A `front` that is cut short is
// an error. Returns the number of samples that are differences.
StatusOr<uint64_t> CheckSize(std::span<const std::byte> front, uint64_t payload_bytes,
                             const Shape& shape, const Params& params);
// Checks one sample of the front. Its id and checksum must equal those of `mine`, this side's
// entry, and its kind and exponent must be possible. `remembers`: the tensor has ids.
Status CheckSample(std::span<const std::byte> front, uint64_t index, const Entry& mine,
                   bool remembers, const Layout& layout);

}  // namespace longhaul::codec::aqsgd
