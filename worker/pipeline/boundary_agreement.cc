// What both ends of a boundary know alike: tables of tokens, from checkpoints and to them, and the
// words with which an epoch begins.
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "base/notification.h"
#include "codec/predict/arithmetic.h"
#include "worker/pipeline/boundary_port.h"
#include "worker/pipeline/boundary_tables.h"

namespace longhaul::worker {

Status BoundaryPort::RestoreTables(const std::vector<NamedArray>& arrays) {
  if (!predicts()) return absl::OkStatus();
  LH_ASSIGN_OR_RETURN(const auto tables,
                      TablesFrom(arrays, options_.layers_before, codec_->tables_shape()));
  return tables ? codec_->RestoreTables(*tables) : absl::OkStatus();
}

StatusOr<std::vector<NamedArray>> BoundaryPort::SaveTables() {
  if (!predicts()) return std::vector<NamedArray>();
  StatusOr<codec::predict::Tables> tables = absl::UnavailableError("the codec thread is gone");
  Notification saved;
  codec_thread_->Post([&] {
    tables = kept_tables_ ? *std::move(kept_tables_) : codec_->SaveTables();
    kept_tables_.reset();
    saved.Notify();
  });
  saved.Wait();
  LH_RETURN_IF_ERROR(tables.status());
  return ArraysOf(*tables, options_.layers_before);
}

void BoundaryPort::KeepTables() {
  if (!predicts()) return;
  codec_thread_->Post(
      [self = shared_from_this()] { self->kept_tables_ = self->codec_->SaveTables(); });
}

StatusOr<uint64_t> BoundaryPort::TablesDigest() {
  if (!predicts()) return 0;
  LH_ASSIGN_OR_RETURN(const uint64_t check, codec_->TablesCheck());
  const codec::predict::TablesShape shape = codec_->tables_shape();
  return check == codec::predict::FirstCheck(shape.vocabulary, shape.channels) ? 0 : check;
}

void BoundaryPort::PostAgreement() {
  const bool differ = *own_tables_ != 0 && *own_tables_ != peer_state_->forward;
  codec_thread_->Post([self = shared_from_this(), differ] {
    const Status agreed = differ ? self->ForgetTables() : absl::OkStatus();
    const std::lock_guard lock(self->mutex_);
    self->agreed_ = agreed;
    self->changed_.notify_all();
  });
}

Status BoundaryPort::ForgetTables() {
  LH_ASSIGN_OR_RETURN(const auto none, codec::predict::Tables::Create(codec_->tables_shape()));
  return codec_->RestoreTables(none);
}

StatusOr<bool> BoundaryPort::AgreeOnMessages(Deadline deadline,
                                             const std::function<bool()>& cancelled) {
  if (!options_.messages && !predicts()) return true;
  LH_ASSIGN_OR_RETURN(const uint64_t tables, TablesDigest());
  wire::MessageState state;
  if (options_.messages) state = options_.messages->state();
  if (predicts()) state.forward = tables;
  {
    // The peer may have spoken first.
    const std::lock_guard lock(mutex_);
    own_tables_ = tables;
    if (peer_state_) PostAgreement();
  }
  std::array<std::byte, wire::kMessageStateBytes> body;
  wire::EncodeMessageState(state, body);
  SendControl(HeaderFor(wire::TensorKind::kMessageState, Step(0)), body);
  std::unique_lock lock(mutex_);
  while (!agreed_) {
    if (cancelled()) return absl::CancelledError("the run was dropped");
    if (closed_) return absl::UnavailableError("the link ended before both sides had agreed");
    if (Now() >= deadline.time()) {
      return absl::DeadlineExceededError("the peer did not say what it remembers");
    }
    changed_.wait_for(lock, std::chrono::milliseconds(100));
  }
  LH_RETURN_IF_ERROR(*agreed_);
  wire::MessageState peer = *peer_state_;
  lock.unlock();
  bool kept = true;
  if (predicts()) {
    kept = options_.start_step == 0 || (tables == peer.forward && tables != 0);
    peer.forward = 0;
  }
  if (!options_.messages) return kept;
  LH_ASSIGN_OR_RETURN(const bool remembered, options_.messages->Agree(peer));
  return kept && remembered;
}

}  // namespace longhaul::worker
