// A store keeps the records of the codec aqsgd (aqsgd/format.h) for one direction of one boundary
// between two pipeline stages: one record for each training sample. Sender and receiver each have a
// store, and make the same changes.
//
//   context.sample_ids = ids; context.messages = store.get();
//   LH_RETURN_IF_ERROR(codec->Encode(view, context, ...));   // reads and writes the ids' records
//
// A record has Codec::MessageBytes bytes; the codec defines their meaning. Samples have the numbers
// 0 to samples() - 1. A store belongs to one run. When the run goes back to a checkpoint, the owner
// of the store rolls the store back to the same step (messages/file_store.h).
//
// Threads: any thread, one call at a time. Errors: only Write can fail, with the errors of the
// store's file. If a Write fails while a tensor is encoded or decoded, only some of the tensor's
// records have changed. Then the store must be rolled back before further use.
#pragma once

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
  // Returns the sample's record, aligned to 16 bytes; empty if there is none. The span is valid
  // until this record changes. Here and in Write, `sample` must be below samples().
  virtual std::span<const std::byte> Read(uint64_t sample) const = 0;
  // Begins a change of a record in training step `step`. Steps must not decrease from call to call.
  // Returns the memory of the record, which the caller must overwrite completely. The memory has
  // the old record, or any bytes if there was none. FileStore can undo the change.
  virtual StatusOr<std::span<std::byte>> Write(Step step, uint64_t sample) = 0;
  // Tells the store which samples' records the caller will read soon, so that a store on disk can
  // read them ahead. A store may ignore the call.
  virtual void Prefetch(std::span<const uint64_t> samples) = 0;
};

}  // namespace longhaul::codec
