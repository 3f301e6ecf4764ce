// Stores the messages that a stage sent and received for each sample at one boundary, for codecs
// with state (codec/message_store.h). Each direction whose codec needs a store has one.
//
//   <root>/<run>/after-layer-4-forward-send/records, undo-...   (codec/messages/file_store.h)
//
// Folders are named by the layer before the boundary, so a resume with another split finds the
// stores of unchanged cuts. Both sides must have equal stores: they roll back to the run's first
// checkpoint, compare digests (Agree), and forget samples that differ.
//
// Threads: Open, state and Agree before the run begins; AddTo and PrefetchAfter on the codec
// thread; Forget on any.
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
  uint32_t layers_before = 0;              // the model's layers below the boundary's upper side
  bool upstream = false;                   // the peer is the stage before
  const data::Mixture* mixture = nullptr;  // the run's data sets, not stored; null: a token file
  uint64_t windows = 0;                    // windows of the training text
  ReadSoFar before = {};                   // steps and microbatches before these replicas
  const codec::Codec* forward = nullptr;   // not stored
  const codec::Codec* backward = nullptr;
};

class BoundaryMessages {
 public:
  // Null if neither codec has state. kResourceExhausted, with the number of bytes, if the disk has
  // no room for the records and the journal.
  static StatusOr<std::unique_ptr<BoundaryMessages>> Open(const BoundaryMessagesOptions& options);
  // Deletes everything of a run.
  static void Drop(const std::string& root, const RunId& run);

  wire::MessageState state() const { return state_; }
  // Keeps the state that both sides have and forgets the rest. False if a run that continues from a
  // checkpoint starts with nothing in a direction.
  StatusOr<bool> Agree(const wire::MessageState& peer);

  // Sets the sample ids and the store of a training tensor in `context`, valid until the next call.
  void AddTo(const Pass& pass, Microbatch microbatch, Direction direction, codec::Context* context);
  // Reads ahead the records of the microbatch after this one.
  void PrefetchAfter(const Pass& pass, Microbatch microbatch, Direction direction);
  // Drops journals that are needed only to return to a step before `step`.
  void Forget(Step step) const;

 private:
  BoundaryMessages(const SampleOrder& order, uint64_t start_step)
      : order_(order), start_step_(start_step) {}
  StatusOr<bool> AgreeOn(codec::FileStore* store, uint64_t mine, uint64_t theirs) const;
  codec::FileStore* StoreOf(Direction direction) const {
    return direction == Direction::kForward ? forward_.get() : backward_.get();
  }
  void FillIds(Step step, Microbatch microbatch);

  const SampleOrder order_;
  const uint64_t start_step_;
  std::unique_ptr<codec::FileStore> forward_, backward_;
  wire::MessageState state_;
  std::vector<uint64_t> ids_;
};

}  // namespace longhaul::worker
