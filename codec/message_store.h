// What a codec with state remembers: one record a training sample, on one side of one boundary and
// direction. Sender and receiver each have a store, and make the same changes to it.
//
//   context.sample_ids = ids; context.messages = store.get();
//   LH_RETURN_IF_ERROR(codec->Encode(view, context, ...));   // reads and writes the ids' records
//
// A record has Codec::MessageBytes bytes, whose meaning is the codec's. Samples are numbered from 0
// to samples() - 1. A store is bound to its run: rolling it back to a checkpoint is its owner's
// matter (messages/file_store.h).
//
// Threads: one at a time. Errors: Write's are those of what holds the records; after one, the store
// is somewhere between two tensors and must be rolled back before it is used again.
#ifndef LONGHAUL_CODEC_MESSAGE_STORE_H_
#define LONGHAUL_CODEC_MESSAGE_STORE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "base/status.h"

namespace longhaul::codec {

class MessageStore {
 public:
  virtual ~MessageStore() = default;

  virtual uint64_t samples() const = 0;
  virtual size_t record_bytes() const = 0;
  // The sample's record, aligned to 16 bytes; empty where there is none. Valid until the store
  // changes this record.
  virtual std::span<const std::byte> Read(uint64_t sample) const = 0;
  // Begins a change in training step `step`, which must not be before that of an earlier change.
  // Gives the record as it is (any bytes where there was none) for the caller to write all of; what
  // stood there can be undone.
  virtual StatusOr<std::span<std::byte>> Write(Step step, uint64_t sample) = 0;
  // These will be read soon.
  virtual void Prefetch(std::span<const uint64_t> samples) = 0;
};

}  // namespace longhaul::codec

#endif  // LONGHAUL_CODEC_MESSAGE_STORE_H_
