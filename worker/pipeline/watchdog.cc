#include "worker/pipeline/watchdog.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace longhaul::worker {
namespace {

constexpr int kMedianSteps = 20;
constexpr int kLongPatience = 10;
constexpr absl::Duration kLookEvery = absl::Seconds(1);

}  // namespace

absl::Duration TimeAtOnePiece::Look(std::optional<uint64_t> piece, MonoTime now) {
  if (!piece || piece != piece_) {
    piece_ = piece;
    seen_ = absl::ZeroDuration();
  } else {
    seen_ += std::min(now - last_, 2 * look_every_);
  }
  last_ = now;
  return seen_;
}

absl::Duration LimitOf(const WorkAtHand::Piece& piece, std::optional<absl::Duration> median_step,
                       absl::Duration timeout) {
  const absl::Duration limit =
      median_step ? std::max(timeout, kMedianSteps * *median_step) : kLongPatience * timeout;
  return piece.kind == WorkAtHand::Kind::kDisk ? kLongPatience * limit : limit;
}

Watchdog::Watchdog(const WorkAtHand* work, const CodecThread* codec_thread, absl::Duration timeout,
                   std::function<void(const std::string&)> on_hang)
    : work_(work),
      codec_thread_(codec_thread),
      timeout_(timeout),
      look_every_(std::min(kLookEvery, timeout / 4)),
      on_hang_(std::move(on_hang)),
      compute_(look_every_),
      codec_(look_every_),
      thread_([this] { Loop(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Watchdog::Loop() {
  std::unique_lock lock(mutex_);
  while (!closing_) {
    if (const std::optional<std::string> hang = Look(Now())) {
      lock.unlock();
      on_hang_(*hang);
      return;
    }
    changed_.wait_for(lock, absl::ToChronoNanoseconds(look_every_), [this] { return closing_; });
  }
}

std::optional<std::string> Watchdog::Look(MonoTime now) {
  const auto hang = [this](absl::Duration seen, const std::string& in) {
    return fmt::format("has made no progress for {:.0f} s in step {}: {}",
                       absl::ToDoubleSeconds(seen), work_->step().value(), in);
  };
  const std::optional<absl::Duration> median = work_->MedianStep();
  const std::optional<WorkAtHand::Piece> piece = work_->piece();
  const absl::Duration compute =
      compute_.Look(piece ? std::optional(piece->number) : std::nullopt, now);
  if (piece && compute >= LimitOf(*piece, median, timeout_)) {
    return hang(compute, WorkAtHand::ToString(*piece));
  }
  const absl::Duration codec = codec_.Look(codec_thread_->JobAtHand(), now);
  if (codec >= LimitOf({}, median, timeout_)) {
    return hang(codec, "encoding or decoding a tensor");
  }
  return std::nullopt;
}

}  // namespace longhaul::worker
