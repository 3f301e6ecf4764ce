#include "worker/stage/group/shared_reader.h"

namespace longhaul::worker {

ReadParameter SharedReader::OfRank(uint32_t rank) {
  return [this, rank](const model::PlacedParameter& parameter, std::span<float> share) {
    return Read(rank, parameter, share);
  };
}

void SharedReader::End() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

Status SharedReader::Read(uint32_t rank, const model::PlacedParameter& parameter,
                          std::span<float> share) {
  std::unique_lock lock(mutex_);
  const uint64_t number = asked_[rank]++;
  changed_.wait(lock, [&] { return ended_ || finished_ == number; });
  if (ended_) return absl::AbortedError("another rank of the group has failed to load");
  const size_t elements = parameter.parameter.shape.elements();
  if (served_ == 0) {
    whole_ = std::make_unique_for_overwrite<float[]>(elements);
    Status status = read_(parameter, std::span(whole_.get(), elements));
    if (!status.ok()) {
      ended_ = true;
      changed_.notify_all();
      return status;
    }
  }
  shares_.Cut(parameter.Name(), std::span(whole_.get(), elements), rank, share);
  if (++served_ < asked_.size()) return absl::OkStatus();
  whole_.reset();
  served_ = 0;
  ++finished_;
  changed_.notify_all();
  return absl::OkStatus();
}

}  // namespace longhaul::worker
