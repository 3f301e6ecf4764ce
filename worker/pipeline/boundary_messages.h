// What a stage remembers at one boundary of the samples that it has sent and received, for codecs
// with state (codec/message_store.h): a store for each direction whose codec asks for one.
//
//   <root>/<run>/after-layer-4-forward-send/records, undo-...   (codec/messages/file_store.h)
//
// A boundary is known by the layer before it, so that a resume on another split finds what belongs
// to the cuts that stayed. Both sides must remember the same: they roll back to the checkpoint that
// the run begins from, compare digests (Agree), and forget what differs.
//
// Threads: Open, state and Agree before the run begins; AddTo and PrefetchAfter on the codec
// thread; Forget on any.
#ifndef LONGHAUL_WORKER_PIPELINE_BOUNDARY_MESSAGES_H_
#define LONGHAUL_WORKER_PIPELINE_BOUNDARY_MESSAGES_H_

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
  std::string root;  // of this worker
  RunSpec spec;
  RunId run;
  uint32_t replica = 0;
  uint32_t layers_before = 0;              // of the model, above the boundary
  bool upstream = false;                   // the peer is above
  const data::Mixture* mixture = nullptr;  // that the run reads; not kept; null: a token file
  uint64_t windows = 0;                    // of the training text
  ReadSoFar before = {};                   // these steps
  const codec::Codec* forward = nullptr;   // not kept
  const codec::Codec* backward = nullptr;
};

class BoundaryMessages {
 public:
  // Null where neither codec has state. kResourceExhausted, with the bytes, where the disk has no
  // room for the records and what the journal may take.
  static StatusOr<std::unique_ptr<BoundaryMessages>> Open(const BoundaryMessagesOptions& options);
  // Deletes everything of a run.
  static void Drop(const std::string& root, const RunId& run);

  wire::MessageState state() const { return state_; }
  // Keeps what the peer remembers too and forgets the rest. False where a run that goes on after a
  // checkpoint begins with nothing in a direction.
  StatusOr<bool> Agree(const wire::MessageState& peer);

  // The ids and the store of a training tensor; valid until the next call.
  void AddTo(const Pass& pass, Microbatch microbatch, Direction direction, codec::Context* context);
  // The microbatch after this one will be needed.
  void PrefetchAfter(const Pass& pass, Microbatch microbatch, Direction direction);
  // The run will not go back to before `step`.
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

#endif  // LONGHAUL_WORKER_PIPELINE_BOUNDARY_MESSAGES_H_
