#include "worker/pipeline/boundary_messages.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/units.h"
#include "run/boundary/boundary_shape.h"
#include "run/boundary/message_footprint.h"

namespace longhaul::worker {
namespace {

namespace fs = std::filesystem;

// The records' room is taken already; the journal's must be free.
Status CheckRoomForJournal(const std::string& folder, const MessageFootprint& footprint) {
  struct statvfs disk {};
  if (::statvfs(folder.c_str(), &disk) != 0) {
    return FromErrno(fmt::format("cannot see how much room {} has", folder), errno);
  }
  const uint64_t free = uint64_t{disk.f_bavail} * disk.f_frsize;
  if (free >= footprint.journal) return absl::OkStatus();
  return ResourceExhausted(
      "no room for the undo journal of the message buffers in {}: it takes up to {} ({} bytes) "
      "beside the buffers' {} ({} bytes), {} ({} bytes) are free; free some, lower "
      "checkpoint.every or checkpoint.keep, or choose a codec without buffers",
      folder, FormatBytes(static_cast<double>(footprint.journal)), footprint.journal,
      FormatBytes(static_cast<double>(footprint.records)), footprint.records,
      FormatBytes(static_cast<double>(free)), free);
}

// Null for a codec without state.
StatusOr<std::unique_ptr<codec::FileStore>> OpenStore(const BoundaryMessagesOptions& options,
                                                      const codec::Codec& codec,
                                                      Direction direction) {
  const RunSpec& spec = options.spec;
  const size_t record_bytes = codec.MessageBytes(BoundaryShape(spec));
  if (record_bytes == 0) return std::unique_ptr<codec::FileStore>();
  LH_RETURN_IF_ERROR(CheckFileName("a run's id", options.run.value()));
  const bool forward = direction == Direction::kForward;
  const std::string name =
      fmt::format("after-layer-{}-{}-{}", options.layers_before, forward ? "forward" : "backward",
                  forward == options.upstream ? "receive" : "send");
  codec::FileStoreOptions store{
      .folder = fmt::format("{}/{}/{}", options.root, options.run.value(), name),
      .identity = fmt::format("run {}, {}, {}, context {}, data seed {}", options.run.value(), name,
                              codec.name(), spec.model.context, spec.data.seed),
      .samples = RecordsOfWindow(spec, direction) * options.windows,
      .record_bytes = record_bytes};
  const std::string folder = store.folder;
  LH_ASSIGN_OR_RETURN(auto opened, codec::FileStore::Open(std::move(store)));
  LH_RETURN_IF_ERROR(opened->RollBack(Step(options.before.step)).status());
  LH_RETURN_IF_ERROR(
      CheckRoomForJournal(folder, FootprintOf(spec, options.windows, record_bytes, direction)));
  return opened;
}

}  // namespace

BoundaryMessages::BoundaryMessages(const SampleOrder& order, const BoundaryMessagesOptions& options)
    : order_(order),
      start_step_(options.before.step),
      windows_(options.windows),
      copies_(RecordsOfWindow(options.spec, Direction::kForward)) {}

StatusOr<std::unique_ptr<BoundaryMessages>> BoundaryMessages::Open(
    const BoundaryMessagesOptions& options) {
  auto messages = std::unique_ptr<BoundaryMessages>(
      new BoundaryMessages(SampleOrderOf(options.spec, options.mixture, options.windows,
                                         options.replica, options.before),
                           options));
  LH_ASSIGN_OR_RETURN(messages->forward_,
                      OpenStore(options, *options.forward, Direction::kForward));
  LH_ASSIGN_OR_RETURN(messages->backward_,
                      OpenStore(options, *options.backward, Direction::kBackward));
  if (!messages->forward_ && !messages->backward_) return std::unique_ptr<BoundaryMessages>();
  if (messages->forward_) messages->state_.forward = messages->forward_->Digest();
  if (messages->backward_) messages->state_.backward = messages->backward_->Digest();
  return messages;
}

void BoundaryMessages::Drop(const std::string& root, const RunId& run) {
  if (root.empty() || !CheckFileName("a run's id", run.value()).ok()) return;
  std::error_code ignored;  // It costs only room.
  fs::remove_all(fmt::format("{}/{}", root, run.value()), ignored);
}

StatusOr<bool> BoundaryMessages::AgreeOn(codec::FileStore* store, uint64_t mine,
                                         uint64_t theirs) const {
  if (store == nullptr) {
    if (theirs == 0) return true;
    return absl::InvalidArgumentError(
        "the peer remembers samples in a direction whose codec remembers none");
  }
  if (mine != theirs) LH_RETURN_IF_ERROR(store->Clear(Step(start_step_)));
  return start_step_ == 0 || (mine == theirs && mine != 0);
}

StatusOr<bool> BoundaryMessages::Agree(const wire::MessageState& peer) {
  LH_ASSIGN_OR_RETURN(const bool forward, AgreeOn(forward_.get(), state_.forward, peer.forward));
  LH_ASSIGN_OR_RETURN(const bool backward,
                      AgreeOn(backward_.get(), state_.backward, peer.backward));
  return forward && backward;
}

void BoundaryMessages::FillIds(Step step, Microbatch microbatch, Direction direction) {
  const uint32_t rows = order_.microbatch_size;
  const uint32_t copies = direction == Direction::kForward ? copies_ : 1;
  ids_.resize(size_t{copies} * rows);
  for (uint32_t sample = 0; sample < copies * rows; ++sample) {
    ids_[sample] = sample / rows * windows_ + order_.WindowOf(step, microbatch, sample % rows);
  }
}

void BoundaryMessages::AddTo(const Pass& pass, Microbatch microbatch, Direction direction,
                             codec::Context* context) {
  codec::FileStore* const store = StoreOf(direction);
  if (store == nullptr || !pass.trains()) return;
  FillIds(pass.step, microbatch, direction);
  context->sample_ids = ids_;
  context->messages = store;
}

void BoundaryMessages::PrefetchAfter(const Pass& pass, Microbatch microbatch, Direction direction) {
  codec::FileStore* const store = StoreOf(direction);
  if (store == nullptr || !pass.trains()) return;
  const bool last = microbatch.value() + 1 == order_.microbatches;
  FillIds(last ? pass.step.Next() : pass.step, last ? Microbatch(0) : microbatch.Next(), direction);
  store->Prefetch(ids_);
}

void BoundaryMessages::Forget(Step step) const {
  if (forward_) forward_->Forget(step);
  if (backward_) backward_->Forget(step);
}

}  // namespace longhaul::worker
