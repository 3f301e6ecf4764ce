// Stores the state that the codecs at one boundary of a stage keep for each training sample
// (codec/message_store.h). A direction whose codec has such state has its own store.
//
//   <root>/<run>/after-layer-4-forward-send/records, undo-...   (codec/messages/file_store.h)
//
// A codec's state ("records", "messages") helps to encode a sample that was sent before. Folders
// are named by the number of layers before the boundary. So if a resumed run divides its
// layers into stages differently, unchanged boundaries still find their stores. Both sides of a
// boundary must have equal stores. So each side rolls its stores back to the checkpoint that the
// attempt begins from. Then the two sides compare digests (Agree), and both clear a store that
// differs.
//
// Threads: Open, state and Agree before the first tensor, on one thread; AddTo and PrefetchAfter on
// the codec thread; Forget on any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "codec/codec.h"
#include "codec/messages/file_store.h"
#include "proto/wire/message_state.h"
#include "run/file/run_spec.h"
#include "worker/pipeline/batches.h"
#include "worker/pipeline/pass.h"

namespace longhaul::worker {

struct BoundaryMessagesOptions {
  std::string root;  // this worker's root folder
  RunSpec spec;
  RunId run;
  uint32_t replica = 0;
  uint32_t layers_before = 0;              // number of the model's layers before the boundary
  bool upstream = false;                   // true: the peer is the previous stage; false: the next
  const data::Mixture* mixture = nullptr;  // the run's data sets, not stored; null: a token file
  uint64_t windows = 0;                    // windows of the training text
  ReadSoFar before = {};                   // what the run had read when the attempt began
  const codec::Codec* forward = nullptr;   // codec of activations; not stored, must not be null
  const codec::Codec* backward = nullptr;  // codec of gradients; as `forward`
};

class BoundaryMessages {
 public:
  // Opens the stores. Returns null if neither codec has state. kResourceExhausted: the disk has no
  // room for the records and the journal; the message says how many bytes they need. Other errors:
  // those of codec::FileStore; kInvalidArgument: the run's id is no file name.
  static StatusOr<std::unique_ptr<BoundaryMessages>> Open(const BoundaryMessagesOptions& options);
  // Deletes all stores of a run. Ignores errors. Does nothing if `root` is empty.
  static void Drop(const std::string& root, const RunId& run);

  // This side's digests as of Open, to be sent to the peer. 0: no records.
  wire::MessageState state() const { return state_; }
  // Compares the digests with those of the peer, and clears each store that differs. Returns false
  // if a run that continues from a checkpoint now has an empty store. kInvalidArgument: the peer
  // has state in a direction whose codec has none. Other errors: those of codec::FileStore.
  StatusOr<bool> Agree(const wire::MessageState& peer);

  // Sets the sample ids and the store in `context`, for a tensor of training. Does nothing if the
  // pass does not train or the codec has no state. The ids are valid until the next call of AddTo
  // or PrefetchAfter; the store is valid as long as this object.
  void AddTo(const Pass& pass, Microbatch microbatch, Direction direction, codec::Context* context);
  // Begins to read the records of the microbatch after this one.
  void PrefetchAfter(const Pass& pass, Microbatch microbatch, Direction direction);
  // Deletes the undo journals that serve only to roll back to steps before `step`.
  void Forget(Step step) const;

 private:
  BoundaryMessages(const SampleOrder& order, const BoundaryMessagesOptions& options);
  StatusOr<bool> AgreeOn(codec::FileStore* store, uint64_t mine, uint64_t theirs) const;
  codec::FileStore* StoreOf(Direction direction) const {
    return direction == Direction::kForward ? forward_.get() : backward_.get();
  }
  void FillIds(Step step, Microbatch microbatch, Direction direction);

  const SampleOrder order_;
  const uint64_t start_step_;
  const uint64_t windows_;
  const uint32_t copies_;  // records of a window in forward_
  std::unique_ptr<codec::FileStore> forward_, backward_;
  wire::MessageState state_;
  std::vector<uint64_t> ids_;
};

}  // namespace longhaul::worker
